"""What was spent before an account was counted here: asked of the usage ledger, once for each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from cache.patience import Timeout
from router.errors import LimitsUnavailable
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks
from router.usage.budgets import Account

__all__ = ["OpeningBalance", "Spent", "unavailable"]

Spent = Callable[[str, float], Awaitable[tuple[int, int]]]
"""Tokens and cost (nano-USD) of an owner (the name of a key, or ``tag:NAME``) since a Unix time;
all that the ledger was told counts, written or not.
"""

_log = get_logger("router.limits")

_LEFT_ALONE: Final = 1.0
"""Seconds after a question without an answer in which it is not asked again."""


def unavailable(why: str) -> LimitsUnavailable:
    """The refusal of a request that cannot be counted."""
    error = LimitsUnavailable(
        f"What the key may use cannot be told at the moment: {why}. Try again.",
        headers={"Retry-After": "1"},
    )
    error.limit = "unavailable"
    return error


Look = Callable[[Account], Awaitable[tuple[int, int]]]
"""Tokens and cost of an account before it was counted; asks the ledger."""


class OpeningBalance:
    """Asks ``look``, each question in a task of its own: whoever asks the same meanwhile waits
    for the same answer, for ``timeout`` seconds at most (``cache.patience``).
    """

    def __init__(self, look: Look, timeout: float, clock: Callable[[], float]) -> None:
        self._look = look
        self._timeout = timeout
        self._clock = clock
        self._asked: dict[Account, asyncio.Future[tuple[int, int] | None]] = {}
        self._failed_at: float | None = None
        self._tasks = Tasks()

    async def close(self) -> None:
        """Nobody waits for an answer any more."""
        await self._tasks.close()

    async def ask(self, accounts: Sequence[Account]) -> list[tuple[int, int] | None]:
        """Tokens and cost of each; None where there is no answer."""
        answers = [self._ask(account) for account in accounts]
        # Others wait for these, too: they must not end with a waiter that is cancelled.
        return list(await asyncio.gather(*(asyncio.shield(answer) for answer in answers)))

    def _ask(self, account: Account) -> asyncio.Future[tuple[int, int] | None]:
        answer = self._asked.get(account)
        if answer is None:
            answer = asyncio.get_running_loop().create_future()
            if self._failed_at is not None and self._clock() - self._failed_at < _LEFT_ALONE:
                answer.set_result(None)
                return answer
            self._asked[account] = answer
            task = self._tasks.spawn(self._answer(account, answer), "ask what was spent")
            task.add_done_callback(lambda _: self._done(account, answer))
        return answer

    def _done(self, account: Account, answer: asyncio.Future[tuple[int, int] | None]) -> None:
        del self._asked[account]
        if not answer.done():  # its task was cancelled
            answer.set_result(None)

    async def _answer(
        self, account: Account, answer: asyncio.Future[tuple[int, int] | None]
    ) -> None:
        result = None
        try:
            async with Timeout(self._timeout):
                result = await self._look(account)
        except Exception as error:  # whatever it is: those who wait need an answer
            if self._failed_at is None:
                _log.warning("the ledger does not tell what was spent", error=repr(error))
            self._failed_at = self._clock()
        else:
            self._failed_at = None
        answer.set_result(result)
