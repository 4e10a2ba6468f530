"""Leaves children that hold its outputs, have sessions of their own and ignore all signals. Prints a line and ends."""

import os
import signal
import time

for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_IGN)
            while True:
                time.sleep(60)
        os._exit(0)
    os.wait()
print("left")
