"""Text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["aligned", "printable"]


def printable(text: str) -> str:
    """``text`` from the network without anything that a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in text)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line for each row, its columns as wide as their longest entry."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
