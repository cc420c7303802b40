"""The router's packages in a folder of their own, changed, and run there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["copied", "run_in"]

_ROOT: Final = Path(__file__).parents[2]


def copied(folder: Path) -> Path:
    """Copy the packages into the folder, which is returned."""
    for package in ("router", "plugins", "cache"):
        shutil.copytree(
            _ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return folder


def run_in(folder: Path, program: str) -> None:
    """Run a Python program, which prints ``router.__file__``, with the packages in the folder;
    raises AssertionError with what it said where it fails.
    """
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{_ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert str(folder) in run.stdout
