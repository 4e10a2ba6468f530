"""Makes calls at once: parallel.py COUNT. Prints the number of each result."""

import collections
import http.client
import json
import os
import sys
import threading
import urllib.request

SEEN = collections.Counter()
LOCK = threading.Lock()
BODY = json.dumps({"model": os.environ["SLUICE_MODEL"], "messages": [{"role": "user", "content": "hi"}]}).encode()
START = threading.Barrier(int(sys.argv[1]))


def call():
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", BODY)
    request.add_header("content-type", "application/json")
    START.wait()
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            outcome = answer.status, json.load(answer)["choices"][0]["message"]["content"]
    except (OSError, http.client.HTTPException, ValueError) as error:
        outcome = repr(error)
    # An addition to a counter is a read and a write.
    with LOCK:
        SEEN[outcome] += 1


threads = [threading.Thread(target=call) for _ in range(int(sys.argv[1]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for outcome, count in sorted(SEEN.items(), key=str):
    print(count, "×", outcome)
