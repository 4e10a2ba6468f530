"""Reports events of its run as fast as it can: relay_flood.py COUNT.

The first forty are large, and come no faster than the sidecar takes them: they use up the bytes of a minute at the daemon.
Then tells how each was answered, as one JSON object. A refusal can come before the body is read, and ends its connection.
"""

import collections
import json
import re
import socket
import sys
import threading
import time
import urllib.request

COUNT, THREADS, LARGE_ONES = int(sys.argv[1]), 8, 40
RUN = json.load(urllib.request.urlopen("http://localhost:8080/health"))["runId"]
LARGE = "x" * 95_000
left, lock = collections.deque(range(COUNT)), threading.Lock()
answers = collections.Counter()
ANSWER = re.compile(rb"HTTP/1\.1 (\d+)")


def request(number):
    text = LARGE if number < LARGE_ONES else "x"
    body = json.dumps({"event_type": "agent.progress", "event_data": {"n": number, "text": text}}).encode()
    head = f"POST /api/v1/sandboxes/{RUN}/events HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


def answer(stream):
    """Reads one answer, and returns its status and its code."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            raise ConnectionError
        head += line
    length = re.search(rb"content-length: (\d+)", head, re.I)
    body = stream.read(int(length[1])) if length else b""
    status = int(ANSWER.match(head)[1])
    code = (json.loads(body).get("error") or {}).get("code") if status != 200 else None
    return f"{status} {code}" if code else str(status)


def flood(to=0, wait=0):
    connection, stream = None, None
    while True:
        time.sleep(wait)
        with lock:
            if len(left) <= to:
                return
            number = left.popleft()
        try:
            if connection is None:
                connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(60)
                connection.connect("/llm-sock/llm.sock")
                stream = connection.makefile("rb")
            connection.sendall(request(number))
            said = answer(stream)
            with lock:
                answers[said] += 1
        except OSError:
            # It is sent again, over a new connection.
            connection = None
            with lock:
                answers["again"] += 1
                left.appendleft(number)


flood(COUNT - LARGE_ONES, 0.15)
threads = [threading.Thread(target=flood) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(answers))
