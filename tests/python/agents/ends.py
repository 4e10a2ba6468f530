"""Kills the other holders of its outputs, closes them, runs on for a while, and writes a file: ends.py SECONDS."""

import os
import signal
import sys
import time

os.kill(-1, signal.SIGKILL)
os.close(1)
os.close(2)
time.sleep(float(sys.argv[1]))
with open("/workspace/repo/late", "w", encoding="utf-8") as file:
    file.write("still there")
