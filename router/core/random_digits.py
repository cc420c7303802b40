"""Random hex digits for ids, taken from the system many at a time: each time is a system call."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["DIGITS", "random_digits"]

DIGITS: Final = 36
_AT_ONCE: Final = 128

_stock: list[str] = []


def random_digits() -> str:
    """``DIGITS`` hex digits that nobody had before, nor will have. Any thread may ask."""
    try:
        return _stock.pop()
    except IndexError:
        many = os.urandom(_AT_ONCE * DIGITS // 2).hex()
        _stock.extend(many[at : at + DIGITS] for at in range(DIGITS, len(many), DIGITS))
        return many[:DIGITS]


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_stock.clear)
