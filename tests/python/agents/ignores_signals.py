"""Ignores every signal that can be ignored, and never ends; so do all of its children."""

import os
import signal
import time

for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
for _ in range(20):
    if os.fork() == 0:
        break
else:
    print("started", flush=True)
while True:
    time.sleep(60)
