"""Fills the workspace with files that are hard to list and to remove, and closes it to all users."""

import os
import socket

NAMES = [
    b"a\nb", b"-rf", b"--", b"*", b"$(touch pwned)", b";ls", b"\x01\x1b[31m", b"\xff\xfe not UTF-8", b" ", b"...",
    b"removed.1", b"removed.2", b"removed.00", b"quote'\"`", b"x" * 255,
]
for name in NAMES:
    os.mkdir(name)
    for inner in NAMES:
        os.close(os.open(os.path.join(name, inner), os.O_CREAT | os.O_WRONLY, 0))
os.mkfifo("a pipe")
for number, target in enumerate(["/", "/etc/shadow", "..", "loop", "/proc/self/root", "nothing"]):
    os.symlink(target, f"link{number}")
os.symlink("loop", "loop")
os.link(b"a\nb/-rf", "hard link")
listening = socket.socket(socket.AF_UNIX)
listening.bind("a socket")
# Closed to all users.
for name in NAMES:
    os.chmod(name, 0)
os.chmod(".", 0)
print("made")
