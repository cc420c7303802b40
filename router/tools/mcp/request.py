"""One request under way in a session, as all parts of the session see it.

The SDK passes the context of whoever sends on to the tasks that work for it. So the HTTP client
finds the request that an exchange belongs to in ``CURRENT``, and tells it at once what the SDK
would make an error without a cause of, or nothing at all.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any, Final

import anyio

from router.tools.mcp.errors import McpError

__all__ = ["CURRENT", "McpRequest"]


class McpRequest:
    """``scope`` is what the SDK does for it; ``deadline`` bounds its HTTP exchanges, too.

    ``sent`` is whether it may have left this process; ``status`` and ``media_type`` are those of
    its last HTTP answer, 0 and "" where there was none; ``resumed`` is how often its stream was.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.scope = anyio.CancelScope()
        self.sent = False
        self.status = 0
        self.media_type = ""
        self.resumed = 0
        self._answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Nobody may be there any more to be told of an error.
        self._answer.add_done_callback(lambda done: done.cancelled() or done.exception())

    @property
    def over(self) -> bool:
        """Whether it was answered or failed, or nobody waits for it any more."""
        return self._answer.done()

    @property
    def error(self) -> McpError | None:
        """What it failed with."""
        failed = self.over and not self._answer.cancelled()
        error = self._answer.exception() if failed else None
        return error if isinstance(error, McpError) else None

    def answer(self, result: Any) -> None:
        """It succeeded, unless it is over."""
        if not self.over:
            self._answer.set_result(result)

    def fail(self, error: McpError) -> None:
        """It failed, unless it is over; what the SDK does for it ends."""
        if not self.over:
            self._answer.set_exception(error)
            self.scope.cancel()

    async def result(self) -> Any:
        """What it is answered with; raises McpError, or TimeoutError at its deadline. When this
        ends, so does what the SDK does for it.
        """
        try:
            async with asyncio.timeout_at(self.deadline):
                return await self._answer
        finally:
            self._answer.cancel()
            self.scope.cancel()


CURRENT: Final[ContextVar[McpRequest]] = ContextVar("mcp_request")
"""The request that a task works for; that of opening the session where there is no other."""
