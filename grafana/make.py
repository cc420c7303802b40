"""Writes what is generated: the dashboards, and the table of metrics in README.md.

``python -m grafana.make`` writes, ``python -m grafana.make --check`` says whether it would.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from grafana.boards import BOARDS
from grafana.panels import as_json
from grafana.table import with_table

__all__ = ["main", "wanted"]

ROOT: Final = Path(__file__).parent


def wanted() -> dict[Path, str]:
    """Every generated file, and what is to be in it."""
    readme = ROOT / "README.md"
    files = {ROOT / "dashboards" / f"{board.uid}.json": as_json(board) for board in BOARDS}
    return {**files, readme: with_table(readme.read_text(encoding="utf-8"))}


def stale() -> list[Path]:
    """Files that are not what they should be, or should not be there."""
    files = wanted()
    found = [path for path, text in files.items() if not path.exists() or _read(path) != text]
    return [*found, *(set(ROOT.glob("dashboards/*")) - files.keys())]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 where something is not up to date and was only to be checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where it would")
    only_check = parser.parse_args(arguments).check
    for path in (found := stale()):
        print(f"{path.relative_to(ROOT.parent)} is not up to date", file=sys.stderr)
        if not only_check:
            _renew(path)
    return 1 if found and only_check else 0


def _renew(path: Path) -> None:
    text = wanted().get(path)
    if text is None:
        path.unlink()
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
