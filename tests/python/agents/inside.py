"""Tries what a sandbox may not do to its own container, and prints the results as one JSON object.

Wants a copy of `id` at /programs, of root, setuid and setgid.
"""

import errno
import json
import os
import resource
import subprocess


def attempt(action):
    """The name of the error, or "done"."""
    try:
        action()
        return "done"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    except ValueError as error:  # what the resource module makes of EPERM
        return str(error)


def write(path):
    with open(path, "wb") as file:
        file.write(b"x")


def create(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    os.unlink(path)


def shown(path):
    """The readable content of a path: the length of a file, the names of a directory; None if it does not exist."""
    try:
        if os.path.isdir(path):
            return sorted(os.listdir(path))
        with open(path, "rb") as file:
            return len(file.read(4096))
    except FileNotFoundError:
        return None
    except OSError as error:
        return errno.errorcode[error.errno]


def status(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def mount_options():
    """The relevant options of each writable mount, without the kernel's interfaces."""
    found = {}
    with open("/proc/self/mounts", encoding="ascii") as file:
        for _, place, kind, options, *_ in map(str.split, file):
            words = options.split(",")
            if "rw" in words and kind not in ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue"):
                found[place] = sorted({"noexec", "nosuid", "nodev"} & set(words))
    return found


def executes(directory):
    """Whether a file in it can be run."""
    path = f"{directory}/program"
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\nexit 0\n")
    os.chmod(path, 0o755)
    try:
        return attempt(lambda: subprocess.run([path], check=True))
    finally:
        os.unlink(path)


def output(*command):
    """The output of a command, and True if it succeeded."""
    ran = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return [ran.returncode == 0, ran.stdout.strip()]


ME = status("self")
print(
    json.dumps(
        {
            "status": {
                name: ME[name].split()[0] if name in ("Uid", "Gid") else ME[name].strip()
                for name in ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
            },
            "init": {name: status(1)[name].strip() for name in ("Name", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")},
            "limits": {
                "core": resource.getrlimit(resource.RLIMIT_CORE),
                "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
            },
            "create": {
                place: attempt(lambda: create(f"{place}/new"))
                for place in ("", "/bin", "/dev", "/etc", "/home", "/llm-sock", "/opt/sluice", "/proc", "/root", "/sys",
                              "/sys/fs/cgroup", "/usr/bin", "/var/tmp", "/run", "/tmp", "/dev/shm", "/workspace")
            },
            "change": {
                path: attempt(lambda: write(path))
                for path in ("/etc/hosts", "/etc/passwd", "/etc/resolv.conf", "/opt/sluice/agent/run.mjs",
                             "/opt/sluice/entrypoint.sh", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
                             "/sys/kernel/uevent_helper", "/usr/bin/node")
            },
            "socket": {
                "unlink": attempt(lambda: os.unlink("/llm-sock/llm.sock")),
                "rename": attempt(lambda: os.rename("/llm-sock/llm.sock", "/llm-sock/x")),
                "chmod": attempt(lambda: os.chmod("/llm-sock/llm.sock", 0o777)),
                "symlink": attempt(lambda: os.symlink("/tmp/x", "/llm-sock/other")),
                "mkdir": attempt(lambda: os.mkdir("/llm-sock/directory")),
                "files": os.listdir("/llm-sock"),
            },
            "become": {
                "setuid": attempt(lambda: os.setuid(0)),
                "setgid": attempt(lambda: os.setgid(0)),
                "setgroups": attempt(lambda: os.setgroups([0])),
                "chroot": attempt(lambda: os.chroot("/tmp")),
                "mknod": attempt(lambda: os.mknod("/tmp/device", 0o20666, os.makedev(1, 3))),
                "nice": attempt(lambda: os.nice(-5)),
                "core": attempt(lambda: resource.setrlimit(resource.RLIMIT_CORE, (1, 1))),
                "su": output("su", "-c", "id -u"),
                # The same program twice: as it is, and with a setuid and a setgid bit and root as its owner.
                "id": output("/usr/bin/id", "-u"),
                "setuid id": output("/programs/id", "-u"),
                "setgid id": output("/programs/id", "-g"),
            },
            "shown": {
                path: shown(path)
                for path in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/latency_stats", "/proc/sched_debug",
                             "/proc/acpi", "/proc/scsi", "/sys/firmware", "/etc/shadow", "/root", "/proc/1/environ",
                             "/proc/1/root", "/dev/kmsg", "/dev/mem", "/dev/fuse", "/dev/net/tun", "/dev/kvm")
            },
            "mounts": mount_options(),
            "executes": {place: executes(place) for place in ("/tmp", "/dev/shm", "/workspace")},
        }
    )
)
