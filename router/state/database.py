"""What a database promises to the stores on top of it."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from router.errors import InternalError, StateUnavailable
from router.state.statement import Dialect, Statement, StatementStep, Value

__all__ = ["Database", "Fault", "StateError", "Unreachable", "WriteRefused", "unavailable"]


class StateError(Exception):
    """The database cannot be used at all: one line for the operator, without any password."""


class WriteRefused(InternalError):
    """The database takes this row from nobody: a value it cannot hold, a broken constraint."""


class Unreachable(Exception):
    """The database did not answer, or is not in a state to.

    ``down`` is False where only this transaction suffered (a deadlock): try again at once.
    ``locked``: another process is at work on the database, such as ``pointsman state vacuum``;
    that is no outage, unless it takes longer than a write may wait.
    """

    def __init__(self, reason: str, *, down: bool = True, locked: bool = False) -> None:
        super().__init__(reason)
        self.down = down
        self.locked = locked


class Fault(Exception):
    """A row or a statement is at fault; nothing was written.

    The text says what is wrong without any value of the row.
    """


def unavailable() -> StateUnavailable:
    """The error for the client."""
    return StateUnavailable(
        "The database of the stored state does not answer. Try again soon, or send store: false.",
        headers={"Retry-After": "1"},
    )


class Database(Protocol):
    """SQLite or PostgreSQL. Every wait has a deadline."""

    dialect: Dialect

    @property
    def up(self) -> bool:
        """Whether it answered when last asked; kept current in the background."""
        ...

    async def start(self) -> None:
        """Connect, and bring the schema up to date.

        Raises StateError (a message for the operator) where that cannot be.
        """
        ...

    async def close(self) -> None:
        """Write what is waiting, and disconnect."""
        ...

    async def read(self, statement: Statement, **parameters: Value) -> list[tuple[Any, ...]]:
        """The rows of a SELECT; none where a parameter is a value that no row can hold.

        Raises StateUnavailable.
        """
        ...

    async def write(self, *steps: StatementStep) -> bool:
        """Run these steps in one transaction; committed when it returns True.

        False when a guard did not hold: then nothing was written. Jobs that wait at the same
        moment share a commit, and none of them suffers for another's fault; jobs of the same
        statements, inserts behind at most one guard, are run side by side, so that a guard may
        not depend on what the inserts of such a job before it bring. A caller that is
        cancelled does not stop the write. When the connection breaks in mid-commit the job is
        tried again, so that steps have to bear being run twice (``ON CONFLICT DO NOTHING``).
        Raises StateUnavailable when the database is down and stays so for ``state.timeout``,
        WriteRefused for a row that it will never take.
        """
        ...

    def submit(self, *steps: StatementStep, heard: bool = True) -> asyncio.Future[bool]:
        """``write`` without waiting: what nobody awaits is written all the same.

        An error is logged when the future was cancelled, or nobody is to hear of it (not
        ``heard``).
        """
        ...

    def hear_again(self, answer: asyncio.Future[bool]) -> asyncio.Future[bool]:
        """What tells how a write ended whose ``answer`` was cancelled; that itself if it was not.

        So one who waits for an answer need not be shielded, which takes a turn of the event loop.
        """
        ...
