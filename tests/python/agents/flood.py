"""Writes to both streams, as fast as they take it: flood.py BYTES_OF_STDOUT BYTES_OF_STDERR. Without end: -1."""

import os
import sys

CHUNK = b"0123456789abcdef" * 4096  # 64 KiB


def write(fd, count):
    """Writes a part; returns the rest."""
    if count < 0:
        os.write(fd, CHUNK)
        return count
    return count - os.write(fd, CHUNK[:count]) if count else 0


left = [int(count) for count in sys.argv[1:3]]
while any(left):
    left = [write(fd, count) for fd, count in enumerate(left, start=1)]
