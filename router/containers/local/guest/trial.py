"""What is run in a sandbox before any is used: it tries to get out."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import time
from typing import Any, Callable

__all__ = ["problems"]

_MIB = 1024 * 1024
_NEW_USER_NAMESPACE = 0x10000000
_ATTACH = 16
_SUPERVISOR = 2
_PLACES = ("/x", "/dev/x", "/usr/x", "/opt/x", "/proc/sys/kernel/hostname")
_HIDDEN = ("/root", "/home", "/etc/shadow", "/var", "/run", "/sys")
_ENVIRONMENT = {
    "HOME",
    "LANG",
    "LC_CTYPE",
    "MPLBACKEND",
    "MPLCONFIGDIR",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PATH",
    "PWD",
    "USER",
}


def problems(memory: int, processes: int, disk: int) -> list[str]:
    """What can be done here that should not be. ``memory`` and ``disk`` are in bytes."""
    library: Any = ctypes.CDLL(None)
    trials: list[tuple[str, Callable[[], bool]]] = [
        ("sockets can be opened", _opens_socket),
        ("there are network devices", lambda: len(socket.if_nameindex()) > 1),
        ("namespaces can be made", lambda: library.unshare(_NEW_USER_NAMESPACE) == 0),
        ("the supervisor can be traced", lambda: library.ptrace(_ATTACH, _SUPERVISOR, 0, 0) == 0),
        ("the supervisor can be ended", lambda: library.kill(_SUPERVISOR, 0) == 0),
        ("the user can be changed", lambda: library.setuid(0) == 0),
        ("memory is not limited", lambda: len(bytearray(memory)) > 0),
        ("processes are not limited", lambda: _starts_more(processes)),
        ("disk space is not limited", lambda: _size("/mnt/data") > disk + _MIB),
        ("the environment is not empty", lambda: bool(set(os.environ) - _ENVIRONMENT)),
    ]
    trials += [(f"{path} can be written", _writes(path)) for path in _PLACES]
    trials += [(f"{path} can be seen", _sees(path)) for path in _HIDDEN]
    return [what for what, trial in trials if _succeeds(trial)]


def _succeeds(trial: Callable[[], bool]) -> bool:
    try:
        return trial()
    except (OSError, MemoryError):
        return False


def _opens_socket() -> bool:
    with socket.socket(socket.AF_INET):
        return True


def _writes(path: str) -> Callable[[], bool]:
    def trial() -> bool:
        with open(path, "w"):
            return True

    return trial


def _sees(path: str) -> Callable[[], bool]:
    return lambda: os.path.exists(path)


def _size(path: str) -> int:
    told = os.statvfs(path)
    return told.f_blocks * told.f_frsize


def _starts_more(processes: int) -> bool:
    """Whether more processes can be started than that."""
    pids: list[int] = []
    try:
        while len(pids) <= processes:
            pid = os.fork()
            if pid == 0:
                time.sleep(60)
                os._exit(0)
            pids.append(pid)
        return True
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
