"""Whose turn it is in a conversation: first come, first served within a process, polled between.

The row of the conversation says which router holds the turn. Requests of one router wait for each
other in here, so that a single one of them at a time asks the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from router.errors import Conflict
from router.state.conversations import BUSY, ConversationStore
from router.state.statement import StatementStep

__all__ = ["Turn", "TurnLock"]

_FIRST_PAUSE: Final = 0.025
_LONGEST_PAUSE: Final = 0.5
_MAX_OWED: Final = 1000
_NONE: Final[Mapping[str, str]] = {}


class Turn:
    """The right to add to a conversation. Whoever has it calls ``release`` in the end."""

    def __init__(
        self,
        conversations: ConversationStore,
        conversation: str,
        router: str,
        number: int,
        on_release: Callable[[Turn], None],
    ) -> None:
        self.conversation = conversation
        self.number = number
        self._conversations = conversations
        self._router = router
        self._on_release: Callable[[Turn], None] | None = on_release

    def steps(
        self, items: Sequence[dict[str, Any]], encrypted_reasoning: Mapping[str, str] = _NONE
    ) -> tuple[StatementStep, ...]:
        """Steps for the job that commits the answer: append ``items`` and end the turn.

        The whole job is refused when another router has taken the turn over.
        """
        return self._conversations.end_turn_steps(
            self.conversation, self._router, self.number, items, encrypted_reasoning
        )

    def release(self) -> None:
        """Let the next one have its turn; only the first call counts."""
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release(self)


class _Place:
    """One conversation's queue within this process, there as long as anybody is in it."""

    __slots__ = ("lock", "people")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.people = 0


class TurnLock:
    """Gives out the turns in conversations for the router process ``router``."""

    def __init__(self, conversations: ConversationStore, router: str) -> None:
        self._conversations = conversations
        self._router = router
        self._places: dict[tuple[str, str], _Place] = {}
        self._owed: set[tuple[str, int]] = set()

    async def acquire(self, owner: str, ident: str, timeout: float) -> Turn | None:
        """The turn in this owner's conversation; None where there is none.

        Raises Conflict when others have it for more than ``timeout`` seconds, StateUnavailable.
        """
        key = (owner, ident)
        deadline = asyncio.get_running_loop().time() + timeout
        await self._line_up(key, deadline)
        turn = None
        try:
            number = await self._begin(owner, ident, deadline)
            if number is not None:
                turn = Turn(self._conversations, ident, self._router, number, self._released(key))
            return turn
        finally:
            if turn is None:
                self._leave(key)

    async def _line_up(self, key: tuple[str, str], deadline: float) -> None:
        place = self._places.setdefault(key, _Place())
        place.people += 1
        first = False
        try:
            async with asyncio.timeout_at(deadline):
                first = await place.lock.acquire()
        except TimeoutError:
            raise _locked() from None
        finally:
            if not first:
                self._forget(key)

    async def _begin(self, owner: str, ident: str, deadline: float) -> int | None:
        pause = _FIRST_PAUSE
        while True:
            number = await self._conversations.begin_turn(
                owner, ident, self._router, self._give_back
            )
            if number != BUSY:
                self._settle()
                return number
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise _locked()
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _released(self, key: tuple[str, str]) -> Callable[[Turn], None]:
        def released(turn: Turn) -> None:
            self._give_back(turn.conversation, turn.number)
            self._leave(key)

        return released

    def _give_back(self, ident: str, number: int) -> None:
        """Release the turn in the database; what could not be written is owed."""

        def done(written: asyncio.Future[bool]) -> None:
            failed = not written.cancelled() and written.exception() is not None
            if failed and len(self._owed) < _MAX_OWED:
                self._owed.add((ident, number))

        self._conversations.release_turn(ident, self._router, number).add_done_callback(done)

    def _settle(self) -> None:
        """The database answers: give back what it did not take before."""
        owed, self._owed = self._owed, set()
        for ident, number in owed:
            self._give_back(ident, number)

    def _leave(self, key: tuple[str, str]) -> None:
        self._places[key].lock.release()
        self._forget(key)

    def _forget(self, key: tuple[str, str]) -> None:
        place = self._places[key]
        place.people -= 1
        if not place.people:
            del self._places[key]


def _locked() -> Conflict:
    return Conflict(
        "Another response is being made in this conversation. Try again when it is finished.",
        param="conversation",
    )
