"""Tries, inside a sandbox, each call that deploy/seccomp.json denies on purpose, and prints the result of each.

usage: denied_calls.py [PROFILE]     (prints one JSON object: {attempt: "EPERM" | other errno | signal | "allowed"})

An attempt is a call's name, or `name:what` where only some arguments are denied. With PROFILE, exit 2 if one of its
deny entries names a call that no attempt here makes. A call that this architecture does not have is not tried.
`abi:` attempts call the kernel in a foreign ABI, for which the filter kills: SIGSYS.

Each attempt runs in a child, with arguments that do no harm where the call is allowed, even to root.
"""

import ctypes
import errno
import json
import mmap
import os
import platform
import signal
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
BAD = -1  # a pointer, descriptor, size or flag that nothing accepts
BUFFER = ctypes.create_string_buffer(4096)
ROOM = ctypes.addressof(BUFFER)
ME = os.getpid()
SELF = -100  # AT_FDCWD

# name: number on x86_64, number on aarch64 (None: not there), arguments
CALLS = {
    "setns": (308, 268, [BAD, 0]),
    "clone3": (435, 435, [ROOM, 64]),
    "io_uring_enter": (426, 426, [BAD, 0, 0, 0, 0, 0]),
    "io_uring_register": (427, 427, [BAD, BAD, 0, 0]),
    "io_uring_setup": (425, 425, [1, ROOM]),
    "add_key": (248, 217, [b"user", b"sluice", b"x", 1, -2]),
    "keyctl": (250, 219, [0, -2, 0]),
    "request_key": (249, 218, [b"user", b"sluice", 0, 0]),
    "bpf": (321, 280, [0, ROOM, 72]),
    "perf_event_open": (298, 241, [ROOM, 0, -1, -1, 0]),
    "userfaultfd": (323, 282, [1]),
    "chroot": (161, 51, [b"/"]),
    "fsconfig": (431, 431, [BAD, 0, 0, 0, 0]),
    "fsmount": (432, 432, [BAD, 0, 0]),
    "fsopen": (430, 430, [b"tmpfs", 0]),
    "fspick": (433, 433, [SELF, b"/", 0]),
    "mount": (165, 40, [0, BAD, 0, 0, 0]),
    "mount_setattr": (442, 442, [BAD, BAD, 0, ROOM, 32]),
    "move_mount": (429, 429, [BAD, b"", BAD, b"", 0]),
    "open_tree": (428, 428, [SELF, b"/", 0]),
    "pivot_root": (155, 41, [BAD, BAD]),
    "swapoff": (168, 225, [BAD]),
    "swapon": (167, 224, [BAD, 0]),
    "umount2": (166, 39, [BAD, 0]),
    "listmount": (458, 458, [BAD, BAD, 0, 0]),
    "open_tree_attr": (467, 467, [SELF, b"/", 0, 0, 0]),
    "statmount": (457, 457, [BAD, BAD, 0, 0]),
    "name_to_handle_at": (303, 264, [SELF, b"/", ROOM, ROOM, 0]),
    "open_by_handle_at": (304, 265, [SELF, BAD, 0]),
    "fanotify_init": (300, 262, [0x200, 0]),
    "fanotify_mark": (301, 263, [BAD, 1, 0, SELF, 0]),
    "kcmp": (312, 272, [ME, ME, 2, 0, 0]),
    "pidfd_getfd": (438, 438, [BAD, 0, 0]),
    "process_madvise": (440, 440, [BAD, 0, 0, 0, 0]),
    "process_vm_readv": (310, 270, [ME, 0, 0, 0, 0, 0]),
    "process_vm_writev": (311, 271, [ME, 0, 0, 0, 0, 0]),
    "delete_module": (176, 106, [BAD, 0]),
    "finit_module": (313, 273, [BAD, BAD, 0]),
    "init_module": (175, 105, [BAD, 0, BAD]),
    "kexec_file_load": (320, 294, [BAD, BAD, 0, 0, BAD]),
    "kexec_load": (246, 104, [0, BAD, BAD, BAD]),
    "reboot": (169, 142, [0, 0, 0, 0]),
    "acct": (163, 89, [BAD]),
    "clock_settime": (227, 112, [BAD, BAD]),
    "lookup_dcookie": (212, 18, [0, 0, 0]),
    "quotactl": (179, 60, [BAD, 0, 0, 0]),
    "quotactl_fd": (443, 443, [BAD, BAD, 0, 0]),
    "setdomainname": (171, 162, [BAD, BAD]),
    "sethostname": (170, 161, [BAD, BAD]),
    "settimeofday": (164, 170, [BAD, BAD]),
    "syslog": (103, 116, [10, 0, 0]),
    "vhangup": (153, 58, []),
    "ioperm": (173, None, [BAD, BAD, 1]),
    "iopl": (172, None, [BAD]),
    "modify_ldt": (154, None, [0, ROOM, 16]),
    "get_mempolicy": (239, 236, [0, 0, 0, 0, 0]),
    "mbind": (237, 235, [0, 0, 0, 0, 0, 0]),
    "migrate_pages": (256, 238, [ME, 0, 0, 0]),
    "move_pages": (279, 239, [ME, 0, 0, 0, 0, 0]),
    "set_mempolicy": (238, 237, [0, 0, 0]),
    "set_mempolicy_home_node": (450, 450, [0, 0, 0, 0]),
    "_sysctl": (156, None, [BAD]),
    "create_module": (174, None, [BAD, 0]),
    "get_kernel_syms": (177, None, [BAD]),
    "nfsservctl": (180, 42, [BAD, 0, 0]),
    "query_module": (178, None, [BAD, BAD, 0, 0, 0]),
    "sysfs": (139, None, [3]),
    "uselib": (134, None, [BAD]),
    "ustat": (136, None, [0, BAD]),
}

NAMESPACES = {
    "NEWNS": 0x00020000,
    "NEWCGROUP": 0x02000000,
    "NEWUTS": 0x04000000,
    "NEWIPC": 0x08000000,
    "NEWUSER": 0x10000000,
    "NEWPID": 0x20000000,
    "NEWNET": 0x40000000,
}
PERSONALITIES = {"ADDR_NO_RANDOMIZE": 0x0040000, "MMAP_PAGE_ZERO": 0x0100000, "READ_IMPLIES_EXEC": 0x0400000}

STREAM, DGRAM, RAW, RDM, SEQPACKET, DCCP, PACKET = 1, 2, 3, 4, 5, 6, 10
UNIX, INET, INET6, NETLINK, LAST_FAMILY = 1, 2, 10, 16, 46
FAMILIES = [family for family in range(LAST_FAMILY + 1) if family not in (UNIX, INET, INET6)]
# type and protocol, of AF_INET and AF_INET6 each
PROTOCOLS = {
    "raw": (RAW, 1),
    "packet": (PACKET, 0),
    "rdm": (RDM, 0),
    "icmp": (DGRAM, 1),
    "icmpv6": (DGRAM, 58),
    "sctp-stream": (STREAM, 132),
    "sctp": (SEQPACKET, 132),
    "seqpacket": (SEQPACKET, 0),
    "dccp": (DCCP, 33),
    "udplite": (DGRAM, 136),
    "l2tp": (DGRAM, 115),
    "mptcp": (STREAM, 262),
}


def attempts(column):
    """Every attempt of this architecture: its name, the call's number, the arguments."""
    for name, row in CALLS.items():
        if row[column] is not None:
            yield name, row[column], row[2]
    number = {"clone": (56, 220), "unshare": (272, 97), "personality": (135, 92), "socket": (41, 198), "socketpair": (53, 199)}
    number = {name: row[column] for name, row in number.items()}
    for name, flag in NAMESPACES.items():
        yield f"clone:{name}", number["clone"], [flag | signal.SIGCHLD, 0, 0, 0, 0]
        yield f"unshare:{name}", number["unshare"], [flag]
    yield "unshare:NEWTIME", number["unshare"], [0x80]
    for name, value in PERSONALITIES.items():
        yield f"personality:{name}", number["personality"], [value]
    for family in FAMILIES:
        for kind in (STREAM, DGRAM, RAW, SEQPACKET):
            yield f"socket:{family}/{kind}", number["socket"], [family, kind, 0]
        yield f"socketpair:{family}", number["socketpair"], [family, STREAM, 0, ROOM]
    for protocol in range(23):
        yield f"socket:netlink/{protocol}", number["socket"], [NETLINK, RAW, protocol]
    for family, of in ((INET, "inet"), (INET6, "inet6")):
        for name, (kind, protocol) in PROTOCOLS.items():
            yield f"socket:{of}/{name}", number["socket"], [family, kind, protocol]
        yield f"socketpair:{of}", number["socketpair"], [family, STREAM, 0, ROOM]
    # The kernel looks at the low half of an argument only: a value beyond it must not slip past.
    yield "socket:netlink-in-the-low-half", number["socket"], [NETLINK | 1 << 32, RAW, 0]
    if column == 0:
        yield "abi:x32", 39 | 0x40000000, []
        yield "abi:i386", None, []


def foreign_call():
    """getpid by `int 0x80`: the number means another call there."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80; ret
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()


def call(number, arguments):
    """The result: "allowed" or the name of the errno. May be killed; may return twice, like fork."""
    if number is None:
        result = foreign_call()
        return "allowed" if result >= 0 else errno.errorcode.get(-result, str(-result))
    words = [argument if isinstance(argument, bytes) else ctypes.c_long(argument) for argument in arguments]
    words += [ctypes.c_long(0)] * (6 - len(words))
    me = os.getpid()
    result = LIBC.syscall(ctypes.c_long(number), *words)
    if os.getpid() != me:  # an allowed clone: this is its child
        os._exit(0)
    return "allowed" if result >= 0 else errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))


def attempt(number, arguments):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()  # no terminal to hang up
            signal.alarm(5)
            os.write(writer, call(number, arguments).encode())
        finally:
            os._exit(0)
    os.close(writer)
    told = os.read(reader, 100).decode()
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return told or "nothing"


def uncovered(profile):
    """The calls of the profile's deny entries that no attempt makes on any architecture."""
    with open(profile, encoding="utf-8") as file:
        entries = json.load(file)["syscalls"]
    denied = {name for entry in entries if entry["action"] != "SCMP_ACT_ALLOW" for name in entry["names"]}
    return sorted(denied - {name.partition(":")[0] for name, _, _ in attempts(0)})


def main():
    if len(sys.argv) > 1:
        missing = uncovered(sys.argv[1])
        if missing:
            print(f"denied in {sys.argv[1]}, but not tried here: {', '.join(missing)}", file=sys.stderr)
            sys.exit(2)
    machine = platform.machine()
    if machine not in ("x86_64", "aarch64"):
        sys.exit(f"the numbers of the calls are not known for {machine}")
    ctypes.c_uint64.from_buffer(BUFFER, 32).value = signal.SIGCHLD  # clone3: exit_signal
    column = 0 if machine == "x86_64" else 1
    print(json.dumps({name: attempt(number, arguments) for name, number, arguments in attempts(column)}))


if __name__ == "__main__":
    main()
