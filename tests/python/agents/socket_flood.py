"""Opens as many connections as it can, and keeps them: socket_flood.py tcp|unix COUNT.

Then tells how many stood, and what `GET /health` answers beside them and once they are gone, as one JSON object.
"""

import json
import socket
import sys
import time

kind, count = sys.argv[1], int(sys.argv[2])


def connect():
    if kind == "tcp":
        return socket.create_connection(("127.0.0.1", 8080), timeout=2)
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(2)
    stream.connect("/llm-sock/llm.sock")
    return stream


def health():
    try:
        stream = connect()
        stream.settimeout(10)
        stream.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        return stream.recv(12).decode()
    except OSError as error:
        return type(error).__name__


held = []
for number in range(count):
    try:
        stream = connect()
        # Half a request: the other side has to wait for more.
        stream.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-le")
        held.append(stream)
    except OSError:
        break
told = {"held": len(held), "beside": health()}
for stream in held:
    stream.close()
deadline = time.monotonic() + 20
while (after := health()) != "HTTP/1.1 200" and time.monotonic() < deadline:
    time.sleep(0.1)
print(json.dumps({**told, "after": after}))
