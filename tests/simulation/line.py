"""One request's connection to a simulated endpoint, with the router's deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from router.errors import UpstreamFailure, UpstreamTimeout
from router.settings.schema import TimeoutSettings

__all__ = ["Line"]


class Line:
    """``first_output`` is called once."""

    def __init__(self, timeouts: TimeoutSettings, first_output: Callable[[], None]) -> None:
        self._timeouts = timeouts
        self._first_output = first_output
        self._has_output = False
        self._broken = False
        self._deadline: asyncio.Timeout | None = None

    async def carry(self, answer: Coroutine[Any, Any, None]) -> None:
        """Wait for the answer; raises UpstreamTimeout, or UpstreamFailure when it is cut."""
        try:
            async with asyncio.timeout(self._timeouts.first_byte) as self._deadline:
                await answer
        except TimeoutError:
            if self._broken:
                raise UpstreamFailure("The connection broke.", again=True) from None
            raise UpstreamTimeout("A deadline has passed.") from None

    def output(self) -> None:
        """The first output has come."""
        self._has_output = True
        self._expire(None)
        self._first_output()

    def silent(self) -> None:
        """Nothing comes any more: after a while that is too long."""
        if self._has_output:
            self._expire(self._timeouts.idle)

    def speaks(self) -> None:
        """It goes on."""
        if self._has_output:
            self._expire(None)

    def cut(self) -> None:
        """The connection is gone."""
        self._broken = True
        self._expire(0.0)

    def _expire(self, seconds: float | None) -> None:
        if self._deadline is None or self._deadline.expired():
            return
        now = asyncio.get_running_loop().time()
        self._deadline.reschedule(None if seconds is None else now + seconds)
