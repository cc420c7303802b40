"""Waiting for something that nobody announces."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Final

__all__ = ["until"]

_PAUSE: Final = 0.005


async def until(
    condition: Callable[..., Any], *arguments: Any, what: str = "", timeout: float = 60.0
) -> Any:
    """What ``condition(*arguments)``, which may be awaitable, returns once that is true.

    Raises TimeoutError, which names ``what``, where it is not within ``timeout`` seconds.
    """
    try:
        async with asyncio.timeout(timeout):
            while True:
                found = condition(*arguments)
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(_PAUSE)
    except TimeoutError as error:
        raise TimeoutError(f"never came: {what or condition}") from error
