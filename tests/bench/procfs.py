"""CPU and memory of processes, from /proc (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["core_seconds", "cpu_seconds", "resident_kib", "tree"]

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: 0 is the state, 1 the parent."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def tree(*roots: int) -> list[int]:
    """``roots`` and all their descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                parent = int(_stat(int(entry.name))[1])
            except OSError:  # it has ended since the directory was read
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = list(roots)
    for member in found:
        found += children.get(member, [])
    return found


def cpu_seconds(*roots: int) -> float:
    """User and system time of the process trees so far. OSError if a root has ended."""
    ticks = 0
    for member in tree(*roots):
        try:
            fields = _stat(member)
        except OSError:
            if member in roots:
                raise
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def resident_kib(root: int) -> int:
    """Resident memory of the process tree in KiB. OSError if ``root`` has ended."""
    total = 0
    for member in tree(root):
        try:
            status = (_PROC / str(member) / "status").read_text()
        except OSError:
            if member == root:
                raise
            continue
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total


def core_seconds(core: int) -> float:
    """How long ``core`` has been busy so far, with whatever work."""
    for line in (_PROC / "stat").read_text().splitlines():
        name, *fields = line.split()
        if name == f"cpu{core}":
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            return (user + nice + system + irq + softirq + steal) / _TICKS
    raise OSError(f"/proc/stat does not list core {core}")
