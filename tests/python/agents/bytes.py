"""Writes binary output: NULs, bytes outside UTF-8, escapes of a terminal, and a line of a megabyte."""

import os

for fd, pieces in ((2, (b"\x00\xff\xfe\x1b[2J\xc3",)), (1, (b"\x00" * 4096, b"\xff\xc3\x28\xf0\x9f", b"x" * (1 << 20), b"\r" * 100))):
    for piece in pieces:
        while piece:
            piece = piece[os.write(fd, piece) :]
