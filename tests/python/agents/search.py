"""Searches all that a sandbox can read for a secret, and prints the places as one JSON list.

The secret is in HIDDEN, each byte as two hex digits with 1 added: so it stands nowhere by being looked for.
"""

import json
import os
import stat

SECRET = bytes((byte - 1) % 256 for byte in bytes.fromhex(os.environ["HIDDEN"]))
# Files of the image are the same for every run; /kit is mounted by the test.
LEFT_OUT = ("/usr", "/kit", "/sys", "/proc")
found = []


def search(path):
    try:
        if stat.S_ISREG(os.lstat(path).st_mode):
            with open(path, "rb") as file:
                if SECRET in file.read(32 << 20):
                    found.append(path)
    except OSError:
        pass


def readable():
    for top, directories, names in os.walk("/"):
        directories[:] = [name for name in directories if os.path.join(top, name) not in LEFT_OUT]
        yield from (os.path.join(top, name) for name in names)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        yield from (f"/proc/{pid}/{name}" for name in ("cmdline", "environ", "comm", "status", "mountinfo", "maps"))
        yield f"/proc/{pid}/task/{pid}/environ"
    yield from (f"/proc/{name}" for name in ("mounts", "cmdline", "version", "net/unix"))


seen = 0
for path in readable():
    seen += 1
    search(path)
if SECRET.decode() in os.environ.values():
    found.append("the environment")
print(json.dumps({"found": found, "searched_enough": seen > 100}))
