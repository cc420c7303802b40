"""Search by a regular expression, in a process of its own.

A model writes the expression, and what a client sends is what it is matched with: there are
expressions that take years. Nothing else bounds Python's ``re`` than the end of its process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import orjson

from router.tools.tool_search.catalogue import FOUND_AT_MOST, ToolText

__all__ = ["MAX_PATTERN", "PatternInvalid", "PatternTooSlow", "by_pattern"]

MAX_PATTERN: Final = 200
"""Characters, as Anthropic documents it."""

_CHILD: Final = Path(__file__).with_name("pattern_child.py")
_SECONDS: Final = 2.0


class PatternInvalid(Exception):
    """The expression is none; the message says why."""


class PatternTooSlow(Exception):
    """The search took longer than ``_SECONDS``, or could not be done at all."""


async def by_pattern(
    pattern: str, texts: Sequence[ToolText], most: int = FOUND_AT_MOST
) -> list[str]:
    """The names of the first tools that the expression, in Python's syntax, is found in: in their
    names first, then in their descriptions, then in their arguments.

    Raises PatternInvalid, PatternTooSlow.
    """
    if len(pattern) > MAX_PATTERN:
        raise PatternInvalid(f"it has more than {MAX_PATTERN} characters")
    fields = [[t.name for t in texts], [t.description for t in texts], [t.arguments for t in texts]]
    answer = orjson.loads(await _asked(orjson.dumps([pattern, most, fields])))
    if "error" in answer:
        raise PatternInvalid(answer["error"])
    return [texts[place].name for place in answer["found"]]


async def _asked(question: bytes) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(_CHILD),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise PatternTooSlow("the router can start no process for it") from error
    try:
        async with asyncio.timeout(_SECONDS):
            answer, _ = await process.communicate(question)
    except TimeoutError:
        raise PatternTooSlow(f"it takes more than {_SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise PatternTooSlow("it could not be searched for")
    return answer
