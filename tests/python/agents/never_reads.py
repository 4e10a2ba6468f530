"""Asks five times for answers that it never reads, and waits: never_reads.py."""

import json
import os
import signal
import socket

body = json.dumps({"model": os.environ["SLUICE_MODEL"], "messages": []}).encode()
head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
held = []
for number in range(5):
    if number % 2:
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(os.environ["LLM_PROXY_SOCKET"])
    else:
        stream = socket.create_connection(("127.0.0.1", int(os.environ["LLM_PROXY_PORT"])))
    stream.sendall(head.encode() + body)
    held.append(stream)
print("asked", flush=True)
signal.pause()
