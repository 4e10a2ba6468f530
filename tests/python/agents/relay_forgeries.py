"""Claims to be another run, or another route, in every way that HTTP offers: relay_forgeries.py OTHER TOKEN.

OTHER is a live run, and TOKEN is the token of its relay. Tells the status of each request, as one JSON object.
"""

import json
import socket
import sys
import urllib.request

OTHER, TOKEN = sys.argv[1:]
OWN = json.load(urllib.request.urlopen("http://localhost:8080/health"))["runId"]
ROOT = "/api/v1/sandboxes"
EVENT = json.dumps({"event_type": "agent.progress", "event_data": {"forged": True}})


def ask(target, method="POST", body=EVENT, **headers):
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(30)
    stream.connect("/llm-sock/llm.sock")
    lines = [f"{method} {target} HTTP/1.1", "host: localhost", "connection: close", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    stream.sendall("\r\n".join([*lines, "", body]).encode())
    return int(stream.makefile("rb").readline().split()[1])


told = {
    "own": ask(f"{ROOT}/{OWN}/events"),
    # Another run, with its own token, in each place where a server could look for one.
    "other": ask(f"{ROOT}/{OTHER}/events"),
    "other bearer": ask(f"{ROOT}/{OTHER}/events", authorization=f"Bearer {TOKEN}"),
    "other messages": ask(f"{ROOT}/{OTHER}/messages", "GET", "", authorization=f"Bearer {TOKEN}"),
    "other task": ask(f"{ROOT}/{OTHER}/task", "GET", "", authorization=f"Bearer {TOKEN}"),
    "other api key": ask(f"{ROOT}/{OTHER}/events", x_api_key=TOKEN, cookie=f"session={TOKEN}"),
    "other absolute": ask(f"http://localhost{ROOT}/{OTHER}/events"),
    "none": ask(f"{ROOT}/r_00000000000000000000/events"),
    "attempt": ask(f"{ROOT}/{OTHER}.0/events"),
    # A token changes nothing about the own run: the event is its own.
    "own bearer": ask(f"{ROOT}/{OWN}/events", authorization=f"Bearer {TOKEN}"),
    "own override": ask(f"{ROOT}/{OWN}/events", x_original_url=f"{ROOT}/{OTHER}/events", x_forwarded_for="127.0.0.1"),
    # Paths that a server could resolve to another one.
    "dots": ask(f"{ROOT}/{OWN}/../{OTHER}/events"),
    "encoded dots": ask(f"{ROOT}/{OWN}/%2e%2e/{OTHER}/events"),
    "encoded slash": ask(f"{ROOT}/{OWN}%2f..%2f{OTHER}/events"),
    "two slashes": ask(f"{ROOT}//{OTHER}/events"),
    "last slash": ask(f"{ROOT}/{OWN}/events/"),
    "upper case": ask(f"{ROOT}/{OWN}/EVENTS"),
    "parameter": ask(f"{ROOT}/{OWN};x={OTHER}/events"),
    "fragment": ask(f"{ROOT}/{OWN}/events/x#events"),
    "files": ask(f"{ROOT}/{OWN}/files", "GET", ""),
    "audit": ask(f"{ROOT}/{OWN}/audit", "GET", ""),
    "approvals": ask(f"{ROOT}/{OWN}/approvals", "GET", ""),
    "decision": ask(f"{ROOT}/{OWN}/approvals/ap_1/decision"),
    "cancel": ask(f"{ROOT}/{OWN}", "DELETE", ""),
    "resume": ask(f"{ROOT}/{OWN}/resume"),
    "exec": ask(f"{ROOT}/{OWN}/exec"),
    "git": ask(f"/git/{OTHER}.git/info/refs", "GET", ""),
    "control": ask("/control", "GET", ""),
    "admin": ask("/api/v1/agents", "GET", ""),
    "override": ask(f"{ROOT}/{OWN}/messages", x_http_method_override="GET", authorization=f"Bearer {TOKEN}"),
}
print(json.dumps(told))
