"""Control groups: the limits of memory and processes that all of a sandbox has together.

Both versions are spoken. With the second the group of the settings has to be the router's to use
(systemd: ``Delegate=yes``), and to have no processes of its own.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["ControlGroup", "ControlGroups"]

_ROOT: Final = Path("/sys/fs/cgroup")
_PREFIX: Final = "sandbox-"
_PAUSE: Final = 0.01
_SPARE_PROCESSES: Final = 8
"""Bubblewrap, the supervisor and their threads, beside what code may start."""


class ControlGroup:
    """The group of one sandbox: a directory for each hierarchy."""

    def __init__(self, places: tuple[Path, ...]) -> None:
        self._places = places

    def members(self) -> list[str]:
        """The files that a process joins it by."""
        return [str(place / "cgroup.procs") for place in self._places]

    def remove(self, seconds: float = 0.0) -> bool:
        """Remove it once its processes have ended; False where they have not in this time."""
        until = time.monotonic() + seconds
        while left := [place for place in self._places if not _removed(place)]:
            if time.monotonic() >= until:
                return False
            self._places = tuple(left)
            time.sleep(_PAUSE)
        return True


def _removed(place: Path) -> bool:
    try:
        place.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class ControlGroups:
    """Makes groups below the one of this ``name``, such as ``pointsman``. ``root`` is where the
    hierarchies are mounted.
    """

    def __init__(self, name: str, root: Path = _ROOT) -> None:
        self._unified = (root / "cgroup.controllers").exists()
        hierarchies = ("",) if self._unified else ("memory", "pids")
        self._parents = tuple(root / hierarchy / name.strip("/") for hierarchy in hierarchies)

    def prepare(self) -> None:
        """Make sure that groups can be made; remove what an earlier router has left. Raises
        OSError.
        """
        for parent in self._parents:
            parent.mkdir(parents=True, exist_ok=True)
            for left in parent.glob(f"{_PREFIX}*"):
                with suppress(OSError):  # it has processes: another router's
                    left.rmdir()
        if self._unified:
            (self._parents[0] / "cgroup.subtree_control").write_text("+memory +pids")

    def make(self, memory: int, processes: int) -> ControlGroup:
        """A group with so many bytes and processes; raises OSError."""
        name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
        group = ControlGroup(tuple(parent / name for parent in self._parents))
        files = {"pids.max": processes + _SPARE_PROCESSES}
        if self._unified:
            files |= {"memory.max": memory, "memory.swap.max": 0, "memory.oom.group": 0}
        else:
            files |= {"memory.limit_in_bytes": memory}
        try:
            for parent in self._parents:
                (parent / name).mkdir()
                for file, value in files.items():
                    if (parent / name / file).exists():
                        (parent / name / file).write_text(str(value))
        except OSError:
            group.remove()
            raise
        return group
