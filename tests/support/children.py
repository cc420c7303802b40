"""Python processes of a test's own."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

__all__ = ["python"]

ROOT = Path(__file__).parents[2]


async def python(code: str, *arguments: str) -> Process:
    """A process that runs ``code``, with pipes for its standard streams."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=ROOT
    )
