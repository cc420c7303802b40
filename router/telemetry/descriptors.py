"""Whether this process may open another file or socket."""

from __future__ import annotations

import errno
import os
from typing import Final

__all__ = ["is_shortage", "shortage"]

_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


def shortage() -> OSError | None:
    """The error of trying one, where there is none left."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as exc:
        return exc if exc.errno in _NO_DESCRIPTORS else None
    return None


def is_shortage(error: BaseException) -> bool:
    """Whether that is why something failed. Who looks up a name, or tries several addresses, is
    told so in other words (``gaierror``), or not at all: then there is still none left.
    """
    return getattr(error, "errno", None) in _NO_DESCRIPTORS or shortage() is not None
