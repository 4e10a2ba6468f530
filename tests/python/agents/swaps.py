"""Fills its workspace with what a reader on the host should not touch, and changes it under the reader: swaps.py SECONDS.

Tells what it could not make, as one JSON object.
"""

import json
import os
import shutil
import socket
import stat
import sys
import threading
import time

SECONDS = float(sys.argv[1])
refused = {}


def attempt(name, make):
    try:
        make()
    except OSError as error:
        refused[name] = error.strerror


# Names. All of them are more than the limits of notices and of events of a minute.
for top in range(60):
    os.makedirs(f"many/{top}")
    for n in range(1000):
        os.close(os.open(f"many/{top}/{n}", os.O_CREAT | os.O_WRONLY))
# Large ones: the first has no blocks, the second has lines without end, the third is one line.
with open("sparse", "w") as file:
    attempt("sparse", lambda: file.truncate(1 << 40))
with open("lines", "wb") as file:
    file.write(b"\n" * (16 << 20))
with open("line", "wb") as file:
    file.write(b"x" * (16 << 20))
os.symlink("/etc/passwd", "link")
os.symlink("../conf/audit.key", "key")
os.symlink("loop", "loop")
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
attempt("device", lambda: os.mknod("device", stat.S_IFBLK | 0o666, os.makedev(8, 0)))
attempt("zero", lambda: os.mknod("zero", stat.S_IFCHR | 0o666, os.makedev(1, 5)))
attempt("mount", lambda: os.link("/proc/self/environ", "environ"))

deadline = time.monotonic() + SECONDS


def swap_directories():
    """A directory becomes a link to the outside, and comes back, while the reader is in it."""
    os.makedirs("inner/a/b", exist_ok=True)
    n = 0
    while time.monotonic() < deadline:
        n += 1
        with open(f"inner/a/b/{n % 50}", "w") as file:
            file.write(f"mine {n}\n")
        os.rename("inner", "away")
        os.symlink(("/etc", "..", "/proc/self/root", "away")[n % 4], "inner")
        os.unlink("inner")
        os.rename("away", "inner")


def swap_transcript():
    """The transcript is each kind of name in turn."""
    os.makedirs(".sluice", exist_ok=True)
    path, new = ".sluice/transcript.jsonl", ".sluice/new"
    kinds = [
        lambda: os.symlink("/etc/passwd", new),
        lambda: os.symlink("../../conf/audit.key", new),
        lambda: os.mkfifo(new),
        lambda: os.link("lines", new),
        lambda: open(new, "w").write('{"mine":true}\n'),
    ]
    n = 0
    while time.monotonic() < deadline:
        n += 1
        kinds[n % len(kinds)]()
        os.rename(new, path)
    if os.path.isdir(path):
        shutil.rmtree(path)
    # In the end it has lines that no parser should have to bear, and too many of them.
    with open(new, "wb") as file:
        file.write(b'{"text":"\\ud800\\u0000"}\n' + b"[" * 100_000 + b"\n" + b"\xff\xfe\n")
        for _ in range(70):
            file.write(b"y" * ((1 << 20) - 1) + b"\n")
    os.rename(new, path)


def rewrite():
    while time.monotonic() < deadline:
        with open("busy", "w") as file:
            file.write(str(time.monotonic()))
        os.chmod("busy", 0)
        os.chmod("busy", 0o644)


threads = [threading.Thread(target=swap) for swap in (swap_directories, swap_transcript, rewrite)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(refused))
