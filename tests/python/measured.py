"""Runs a command, and records its time and memory: measured.py FILE COMMAND…

FILE gets one JSON object: peak_kib, the most memory that one process of it and its children had at a time, and
cpu_seconds, which they had together. Ends as the command has ended.
"""

import json
import resource
import subprocess
import sys

code = subprocess.call(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w", encoding="ascii") as file:
    json.dump({"peak_kib": used.ru_maxrss, "cpu_seconds": used.ru_utime + used.ru_stime}, file)
sys.exit(code)
