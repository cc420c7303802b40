"""Waiting for something that nobody announces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["until"]


async def until(condition: Callable[[], bool], timeout: float = 30.0) -> None:
    """Returns when ``condition`` holds; raises TimeoutError after ``timeout`` seconds."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 - there is nothing to wait on
            await asyncio.sleep(0.01)
