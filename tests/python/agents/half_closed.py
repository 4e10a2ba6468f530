"""Asks, closes its side of the connection, and only then reads the answer."""

import json
import os
import socket

body = json.dumps({"model": os.environ["SLUICE_MODEL"], "messages": [{"role": "user", "content": "hi"}]}).encode()
head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
with socket.create_connection(("127.0.0.1", int(os.environ["LLM_PROXY_PORT"]))) as stream:
    stream.sendall(head.encode() + body)
    stream.shutdown(socket.SHUT_WR)
    answer = b""
    while piece := stream.recv(65536):
        answer += piece
head, _, body = answer.partition(b"\r\n\r\n")
print(f"{head.splitlines()[0].decode()}, and {json.loads(body)['choices'][0]['message']['content']}")
