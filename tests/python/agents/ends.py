"""Closes its outputs, goes on for a while, and leaves a file behind: ends.py SECONDS."""

import os
import sys
import time

os.close(1)
os.close(2)
time.sleep(float(sys.argv[1]))
with open("/workspace/repo/late", "w", encoding="utf-8") as file:
    file.write("still there")
