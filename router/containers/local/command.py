"""What a sandbox is started with: bubblewrap's arguments, and the limits around them.

its own    user, process, network, IPC, host name and mount namespaces; no further ones can be
           made in it
/          an empty file system, read-only
/usr …     the machine's, read-only: its programs and libraries, and nothing of /etc, /home …
/mnt/data  in memory, of ``disk_mb``; so are /tmp and /dev/shm, of 64 MiB at most
user       an id that nobody else has, where the router is root; else the router's, which in
           there may do nothing that the router may do outside
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from shutil import which
from typing import Final

from router.containers.local.control_group import ControlGroup
from router.containers.local.seccomp import filter_program
from router.containers.runner import DATA
from router.settings.code_interpreter import LocalRunnerSettings

__all__ = ["SandboxOrder", "found_python"]

_MIB: Final = 1024 * 1024
_SCRATCH: Final = 64 * _MIB
_DESCRIPTORS: Final = 256
_FILES: Final = 20_000
_USERS: Final = 65_536
"""Of so many user ids, from ``first_uid`` on, each sandbox has one by chance."""

_LAUNCH: Final = Path(__file__).with_name("launch.py")
_GUEST: Final = {
    path.name: path.read_bytes() for path in sorted(Path(__file__).with_name("guest").glob("*.py"))
}
_START_GUEST: Final = (
    "import sys; sys.path.insert(0, '/opt'); from guest.supervisor import main; main()"
)
_PLACES: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC: Final = ("alternatives", "fonts", "ld.so.cache", "localtime")
_ENVIRONMENT: Final = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "MPLBACKEND": "Agg",
    "MPLCONFIGDIR": "/tmp/matplotlib",
    "OMP_NUM_THREADS": "2",
    "OPENBLAS_NUM_THREADS": "2",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "USER": "sandbox",
}
_PREFIXES: Final = "import sys; print(sys.prefix); print(sys.base_prefix)"
_PYTHON_SECONDS: Final = 20.0


@dataclass(slots=True)
class SandboxOrder:
    """How one sandbox is started. ``memory`` is in bytes; ``group`` has its limits, where there is
    one.
    """

    settings: LocalRunnerSettings
    memory: int
    group: ControlGroup | None = None
    user: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if os.geteuid() == 0:
            self.user = self.settings.first_uid + secrets.randbelow(_USERS)

    @contextmanager
    def files(self) -> Iterator[tuple[list[str], tuple[int, ...]]]:
        """The command, and the files that it has to inherit; raises OSError, ValueError."""
        guest = {name: _in_memory(name, data) for name, data in _GUEST.items()}
        rules = _in_memory("filter", filter_program())
        try:
            order = {
                "groups": [] if self.group is None else self.group.members(),
                "user": self.user,
                "limits": {
                    "RLIMIT_CORE": 0,
                    "RLIMIT_AS": self.memory,
                    "RLIMIT_NOFILE": _DESCRIPTORS,
                    "RLIMIT_FSIZE": self.settings.disk_mb * _MIB,
                },
                "command": self._command(guest, rules),
            }
            yield [sys.executable, "-I", str(_LAUNCH), json.dumps(order)], (*guest.values(), rules)
        finally:
            for number in (*guest.values(), rules):
                os.close(number)

    def clean_up(self, seconds: float) -> bool:
        """Remove what was made for it, within ``seconds``; whether that was done."""
        return self.group is None or self.group.remove(seconds)

    def _command(self, guest: Mapping[str, int], rules: int) -> list[str]:
        settings = self.settings
        bubblewrap = which(settings.bubblewrap)
        if bubblewrap is None:
            raise ValueError(f"{settings.bubblewrap} is not installed")
        python, *folders = found_python(settings.python)
        size, scratch = settings.disk_mb * _MIB, min(settings.disk_mb * _MIB, _SCRATCH)
        given = [str(argument) for argument in (self.memory, settings.processes, _FILES)]
        return [
            bubblewrap,
            *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"),
            *("--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"),
            *("--uid", "1000", "--gid", "1000", "--clearenv"),
            *(one for pair in _ENVIRONMENT.items() for one in ("--setenv", *pair)),
            *_machine(),
            *("--proc", "/proc", "--dev", "/dev"),
            *_memory_folder("/dev/shm", scratch),
            *("--remount-ro", "/dev"),
            *_memory_folder("/tmp", scratch),
            *_memory_folder(DATA, size),
            *_elsewhere(folders),
            *(one for name, number in guest.items() for one in _program(name, number)),
            *("--remount-ro", "/", "--chdir", DATA, "--seccomp", str(rules), "--"),
            *(python, "-I", "-B", "-c", _START_GUEST, *given),
        ]


@lru_cache(maxsize=8)
def found_python(given: str | None) -> tuple[str, ...]:
    """The interpreter for client code, and the folders that it needs. Raises ValueError."""
    candidates = [given] if given else [sys._base_executable, "/usr/bin/python3"]  # type: ignore[attr-defined]
    problem = "no Python was found"
    for python in candidates:
        if python is None:
            continue
        try:
            told = subprocess.run(
                [python, "-I", "-c", _PREFIXES],
                capture_output=True,
                check=True,
                env={},
                timeout=_PYTHON_SECONDS,
            )
        except (OSError, subprocess.SubprocessError):
            problem = f"{python} is not a Python that can be run"
            continue
        folders = list(dict.fromkeys(told.stdout.decode().split("\n")[:2]))
        closed = next((one for one in map(Path, folders) if not _is_open(one)), None)
        if closed is None:
            return (python, *folders)
        problem = f"{closed}, which {python} needs, can not be read by everybody"
    raise ValueError(problem)


def _is_open(path: Path) -> bool:
    """Whether everybody may read what is there: in a sandbox nobody is root."""
    return all(one.stat().st_mode & 0o005 == 0o005 for one in (path, *path.parents))


def _machine() -> Iterator[str]:
    """The programs of the machine."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _PLACES:
        place = Path("/", name)
        if place.is_symlink():
            yield from ("--symlink", os.readlink(place), str(place))
        elif place.is_dir():
            yield from ("--ro-bind", str(place), str(place))
    for name in _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


def _elsewhere(folders: Sequence[str]) -> Iterator[str]:
    """The folders of the Python that are not among them."""
    for folder in folders:
        if not Path(folder).is_relative_to("/usr"):
            yield from ("--ro-bind", folder, folder)


def _program(name: str, number: int) -> tuple[str, ...]:
    return ("--ro-bind-data", str(number), f"/opt/guest/{name}")


def _memory_folder(place: str, size: int) -> tuple[str, ...]:
    return ("--size", str(size), "--perms", "0755", "--tmpfs", place)


def _in_memory(name: str, data: bytes) -> int:
    number = os.memfd_create(name, os.MFD_CLOEXEC)
    os.write(number, data)
    os.lseek(number, 0, os.SEEK_SET)
    return number
