"""Writes SURFACES.md, once every cell is what ``expected.py`` says.

``python -m tests.matrix.make`` writes, ``--check`` says whether it would.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from tests.matrix.document import PATH, document
from tests.matrix.running import wrong
from tests.matrix.stand import COLUMNS

__all__ = ["main", "stale"]


def stale() -> bool:
    """Whether the document is not what it should be."""
    return not PATH.exists() or PATH.read_text(encoding="utf-8") != document()


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 where a cell is wrong, or the document was only to be checked and is not
    up to date.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where it would")
    only_check = parser.parse_args(arguments).check
    failures = asyncio.run(_failures())
    for failure in failures:
        print(failure, file=sys.stderr)
    if failures:
        print("see tests/matrix/expected.py; nothing was written", file=sys.stderr)
        return 1
    if not stale():
        return 0
    print(f"{PATH.name} is not up to date", file=sys.stderr)
    if only_check:
        return 1
    PATH.write_text(document(), encoding="utf-8")
    return 0


async def _failures() -> list[str]:
    ways = [(column, cached) for cached in (False, True) for column in COLUMNS]
    return [failure for column, cached in ways for failure in await wrong(column, cached=cached)]


if __name__ == "__main__":
    sys.exit(main())
