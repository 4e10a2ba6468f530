"""Tries to change a directory in every way: read_only.py DIRECTORY. Prints each result, as one JSON object."""

import errno
import json
import os
import sys

TOP = sys.argv[1]


def attempt(action, *arguments):
    try:
        action(*arguments)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]


def write(path, flags):
    os.close(os.open(path, os.O_WRONLY | flags, 0o644))


def at(name):
    return os.path.join(TOP, name)


# By its own name, and by those of a link and of /proc.
os.symlink(TOP, "/tmp/link")
os.chdir(TOP)
print(
    json.dumps(
        {
            "read": open(at("file"), encoding="utf-8").read(),
            "names": sorted(os.listdir(TOP)),
            "create": attempt(write, at("new"), os.O_CREAT),
            "by a link": attempt(write, "/tmp/link/new", os.O_CREAT),
            "by /proc": attempt(write, "/proc/self/cwd/new", os.O_CREAT),
            "by the workspace": attempt(write, "../repo/new", os.O_CREAT),
            "write": attempt(write, at("file"), 0),
            "truncate": attempt(os.truncate, at("file"), 0),
            "unlink": attempt(os.unlink, at("file")),
            "rename": attempt(os.rename, at("file"), at("other")),
            "move out": attempt(os.rename, at("file"), "/workspace/file"),
            "link out": attempt(os.link, at("file"), "/workspace/file"),
            "mkdir": attempt(os.mkdir, at("directory")),
            "symlink": attempt(os.symlink, "/", at("link")),
            "chmod": attempt(os.chmod, at("file"), 0o777),
            "chown": attempt(os.chown, at("file"), 1001, 1001),
            "utime": attempt(os.utime, at("file")),
            "setxattr": attempt(os.setxattr, at("file"), "user.x", b"x"),
            "rmdir": attempt(os.rmdir, TOP),
            "below": attempt(write, at("below/new"), os.O_CREAT),
            "names below": sorted(os.listdir(at("below"))),
        }
    )
)
