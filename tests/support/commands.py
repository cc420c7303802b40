"""Commands run as a user runs them, to their end."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ended", "switchyard"]

_ROOT = Path(__file__).parents[2]
_DEADLINE = 60.0


@dataclass
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str


async def switchyard(*arguments: str) -> Ended:
    """Run ``switchyard ARGUMENTS`` in a process of its own; it must not end in a traceback."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "router", *arguments),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_DEADLINE):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return Ended(process.returncode, out.decode(), err.decode())
