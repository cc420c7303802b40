"""The filter of system calls in a sandbox, as a program for the kernel (``struct sock_filter[]``).

It says no to what code in a sandbox has no use for, and what holes in kernels have been made of:
namespaces, mounts, tracing, keys, BPF, io_uring, sockets other than Unix ones, and memory that no
limit counts. Calls that are newer than this table are not there (``ENOSYS``). The process that
watches over the sandbox has the process id ``SUPERVISOR``, and gets no signals from anybody.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from typing import Final

__all__ = ["SUPERVISOR", "filter_program", "is_known_machine"]

SUPERVISOR: Final = 2
"""The process id, in the sandbox, of what bubblewrap starts: it is itself the first."""

_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_KILL: Final = 0x80000000

_LOAD, _EQUAL, _GREATER, _SET, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_X32: Final = 0x40000000
_AF_UNIX: Final = 1
_NEW_NAMESPACE: Final = 0x7E020080
"""CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""

_TERMINAL_INPUT: Final = (0x5412, 0x541C, 0x8901, 0x8902)
"""TIOCSTI and TIOCLINUX, which type into a terminal; FIOSETOWN and SIOCSPGRP, like the next."""

_MACHINES: Final[Mapping[str, int]] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_LAST: Final = 462
"""``mseal`` of Linux 6.10."""

_OWNER_OF_SIGNALS: Final = (8, 10, 15)
"""F_SETOWN, F_SETSIG and F_SETOWN_EX, which have the kernel send signals."""

_CALLS: Final[Mapping[str, tuple[int | None, int | None]]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "semget": (64, 190),
    "set_mempolicy": (238, 237),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setpriority": (141, 140),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
    "vmsplice": (278, 75),
}
"""What is refused (``EPERM``): its number on x86_64 and on aarch64."""

_OTHERS: Final[Mapping[str, tuple[int, int]]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "kill": (62, 129),
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "tgkill": (234, 131),
    "tkill": (200, 130),
}
"""What is refused for some of its arguments."""

_OF_A_PROCESS: Final = (
    "kill", "tgkill", "tkill", "prlimit64",
    "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler",
)  # fmt: skip
"""Those whose first argument is a process or thread, or minus a group of them."""


def is_known_machine(machine: str | None = None) -> bool:
    """Whether there is a filter for this machine's processor."""
    return (machine or platform.machine()) in _MACHINES


def filter_program(machine: str | None = None) -> bytes:
    """The filter for a machine of this name, this one's where none is given. Raises KeyError for
    one that is not known.
    """
    machine = machine or platform.machine()
    column = list(_MACHINES).index(machine)
    other = {name: numbers[column] for name, numbers in _OTHERS.items()}
    program = [
        *_load(_ARCHITECTURE),
        *_unless_equal(_MACHINES[machine], _KILL),
        *_load(_NUMBER),
        *_if_greater(_LAST, _ERRNO | errno.ENOSYS),  # the calls of x32 among them
        # Its flags are in memory, which a filter cannot see; libraries use clone then.
        *_if_equal(other["clone3"], _ERRNO | errno.ENOSYS),
    ]
    refused = sorted(numbers[column] or 0 for numbers in _CALLS.values() if numbers[column])
    for number in refused:
        program += _if_equal(number, _ERRNO | errno.EPERM)
    program += _where(other["clone"], _if_set(_NEW_NAMESPACE))
    program += _where(other["ioctl"], [one for code in _TERMINAL_INPUT for one in _if(code)], 1)
    program += _where(other["fcntl"], [one for code in _OWNER_OF_SIGNALS for one in _if(code)], 1)
    for name in ("socket", "socketpair"):
        program += _where(other[name], _unless_equal(_AF_UNIX, _ERRNO | errno.EAFNOSUPPORT))
    pids = [one for pid in (SUPERVISOR, 1, -1, -SUPERVISOR) for one in _if(pid & 0xFFFFFFFF)]
    for name in _OF_A_PROCESS:
        program += _where(other[name], pids)
    program += _return(_ALLOW)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


_Instruction = tuple[int, int, int, int]


def _load(offset: int) -> list[_Instruction]:
    return [(_LOAD, 0, 0, offset)]


def _return(action: int) -> list[_Instruction]:
    return [(_RETURN, 0, 0, action)]


def _if_equal(value: int, action: int) -> list[_Instruction]:
    return [(_EQUAL, 0, 1, value), *_return(action)]


def _unless_equal(value: int, action: int) -> list[_Instruction]:
    return [(_EQUAL, 1, 0, value), *_return(action)]


def _if_greater(value: int, action: int) -> list[_Instruction]:
    return [(_GREATER, 0, 1, value), *_return(action)]


def _if_set(bits: int) -> list[_Instruction]:
    return [(_SET, 0, 1, bits), *_return(_ERRNO | errno.EPERM)]


def _if(value: int) -> list[_Instruction]:
    return _if_equal(value, _ERRNO | errno.EPERM)


def _where(number: int, rules: list[_Instruction], argument: int = 0) -> list[_Instruction]:
    """For this system call: rules on the lower half of one of its arguments, and no others after
    them.
    """
    body = [*_load(_ARGUMENTS + 8 * argument), *rules, *_return(_ALLOW)]
    return [(_EQUAL, 0, len(body), number), *body]
