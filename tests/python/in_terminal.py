"""Runs a command in a terminal of its own, and plays the user.

    in_terminal.py STEPS COMMAND...

STEPS is a JSON list of ["expect", TEXT], ["send", TEXT], ["resize", ROWS, COLUMNS], ["signal", NAME] and ["hang up"]. Texts are bytes, a
character each. What the command draws goes to stdout as it comes; at its end one JSON object goes to stderr: its exit code, and
whether the modes of the terminal are what they were.
"""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

PATIENCE = 60  # seconds for each step


def resize(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def main():
    steps = json.loads(sys.argv[1])
    master, slave = pty.openpty()
    resize(slave, 24, 80)
    before = termios.tcgetattr(slave)
    child = subprocess.Popen(
        sys.argv[2:],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    drawn, since, raw_seen = b"", time.monotonic(), False
    while True:
        ended = child.poll() is not None
        while select.select([master], [], [], 0 if ended else 0.02)[0]:
            piece = os.read(master, 65536)
            drawn += piece
            os.write(1, piece)
        raw_seen = raw_seen or not termios.tcgetattr(slave)[3] & termios.ICANON
        if not steps:
            if ended:
                break
            continue
        step, *values = steps[0]
        if ended and step != "expect":
            break
        if step == "expect":
            wanted = values[0].encode("latin-1")
            if wanted not in drawn:
                if ended:
                    break
                if time.monotonic() - since > PATIENCE:
                    sys.exit(f"waited in vain for {wanted!r} in {drawn!r}")
                continue
            # The next step looks at what comes after it.
            drawn = drawn[drawn.index(wanted) + len(wanted):]
        elif step == "send":
            os.write(master, values[0].encode("latin-1"))
        elif step == "resize":
            # The kernel signals the foreground process group by itself.
            resize(master, *values)
        elif step == "signal":
            child.send_signal(getattr(signal, values[0]))
        elif step == "raw":
            if termios.tcgetattr(slave)[3] & termios.ICANON:
                continue
        steps.pop(0)
        since = time.monotonic()
    after = termios.tcgetattr(slave)
    result = {"code": child.returncode, "restored": before == after, "raw_seen": raw_seen, "left": steps}
    print(json.dumps(result), file=sys.stderr)


main()
