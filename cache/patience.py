"""A deadline that counts only while the event loop could have heard an answer."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final

__all__ = ["Timeout"]

_SLICES: Final = 8


class Timeout:
    """Like ``asyncio.timeout``: ``async with Timeout(seconds)`` raises TimeoutError.

    The time is counted in slices, each begun when the one before has ended, and the loop reads its
    sockets between two of them. A loop that was held up for long therefore counts one slice, and
    has read the answer that waited for it before the last one ends: what is measured is the other
    side, not this process.
    """

    __slots__ = ("_deadline", "_handle", "_left", "_slice")

    def __init__(self, seconds: float) -> None:
        self._slice = seconds / _SLICES
        self._left = _SLICES
        self._deadline = asyncio.timeout(None)
        self._handle: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._deadline.__aenter__()
        self._handle = asyncio.get_running_loop().call_later(self._slice, self._passed)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
        await self._deadline.__aexit__(kind, error, trace)

    def _passed(self) -> None:
        loop = asyncio.get_running_loop()
        self._left -= 1
        if self._left:
            self._handle = loop.call_later(self._slice, self._passed)
        else:
            self._deadline.reschedule(loop.time())
