"""The files of the sandbox, as the router reads and writes them.

All of that is done in the sandbox: a symbolic link leads nowhere that code could not go itself.
"""

from __future__ import annotations

import base64
import os
import stat
from typing import Any

__all__ = ["DATA", "delete", "found_files", "read", "remove_all", "write"]

DATA = "/mnt/data"
_UPLOAD = ".pointsman-upload-"
_MOST_LISTED = 1000


def found_files() -> dict[str, Any]:
    """The regular files with names that can be shown: path, size, time of the last change."""
    found: list[tuple[str, int, int]] = []
    for folder, folders, names in os.walk(DATA):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            told = os.lstat(path)
            shown = os.path.relpath(path, DATA)
            if stat.S_ISREG(told.st_mode) and not name.startswith(_UPLOAD) and _is_text(shown):
                found.append((shown, told.st_size, int(told.st_mtime)))
        if len(found) >= _MOST_LISTED:
            break
    return {"files": found[:_MOST_LISTED]}


def read(path: str, offset: int, size: int) -> dict[str, Any]:
    """A piece of a regular file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    number = os.open(os.path.join(DATA, path), flags)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return {"error": "it is not a file"}
        data = os.pread(number, size, offset)
    finally:
        os.close(number)
    return {"data": base64.b64encode(data).decode()}


def write(path: str, upload: str, data: str, last: bool) -> dict[str, Any]:
    """Add a piece to an upload; with the last it gets its name."""
    place = os.path.join(DATA, _UPLOAD + upload)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    number = os.open(place, flags, 0o644)
    try:
        rest = memoryview(base64.b64decode(data))
        while rest:
            rest = rest[os.write(number, rest) :]
    finally:
        os.close(number)
    if last:
        os.replace(place, os.path.join(DATA, path))
    return {}


def delete(path: str) -> dict[str, Any]:
    """Remove a file, or an upload under way."""
    os.unlink(os.path.join(DATA, path))
    return {}


def remove_all(place: str) -> None:
    """Remove everything in a folder, as far as that can be done."""
    for folder, folders, names in os.walk(place, topdown=False):
        for name in (*names, *folders):
            path = os.path.join(folder, name)
            is_folder = os.path.isdir(path) and not os.path.islink(path)
            try:
                (os.rmdir if is_folder else os.unlink)(path)
            except OSError:
                pass


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return path.isprintable()
