"""Runs a command that must not outlive its starter, kill -9 included.

usage: leash.py [--remove DIRECTORY] [--interrupt] COMMAND ARGS…

Standard input is the leash: the starter keeps the other end open and never writes. When it closes, on purpose or
because the starter died in any way, the command and all of its process group are killed. When the command ends by
itself, so does this, with its exit status. Last of all DIRECTORY is removed. With --interrupt it is first asked to end:
a database that is killed leaves shared memory behind.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent():
    # If the leash itself is killed, the command ends too.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main():
    arguments = sys.argv[1:]
    scratch = None
    if arguments[0] == "--remove":
        scratch, arguments = arguments[1], arguments[2:]
    gently = arguments[0] == "--interrupt"
    try:
        code = hold(arguments[1:] if gently else arguments, gently)
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(128 - code if code < 0 else code)


def hold(command, gently):
    # The command must not hold the leash, nor be stopped by a ^C that is meant for the starter: its own session.
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended = os.pidfd_open(child.pid)
    while True:
        readable, _, _ = select.select([0, ended], [], [])
        if ended in readable or os.read(0, 4096) == b"":
            break
    if gently:
        child.send_signal(signal.SIGINT)
        select.select([ended], [], [], 10)
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return child.wait()


if __name__ == "__main__":
    main()
