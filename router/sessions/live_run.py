"""A run of this process, and what its execution is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from router.errors import Overloaded
from router.sessions.event_log import RunLog
from router.telemetry.log import get_logger

__all__ = ["AtOnce", "Claimed", "Execute", "Live", "check_queue", "check_room"]

_log = get_logger("router.runs")

_LATER: Final = {"Retry-After": "5"}


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run to be executed: ``request`` is what was submitted, ``last_event`` the number of the
    last event that is logged, from which the stream goes on.
    """

    id: str
    owner: str
    fence: int
    last_event: int
    request: bytes


Execute = Callable[[Claimed, RunLog], Awaitable[None]]
"""Answers the request into the log and ends it with ``RunLog.complete``."""


AtOnce = Callable[[str], Awaitable[int | None]]
"""How many of an owner's requests may be under way at once; None is any number."""


class Live:
    """A run of this process; ``task`` works on it once it is ours for sure."""

    __slots__ = ("counts", "log", "owner", "task")

    def __init__(self, owner: str, *, counts: bool) -> None:
        self.owner = owner
        self.counts = counts
        self.log: RunLog
        self.task: asyncio.Task[None] | None = None

    def gone(self, why: str) -> None:
        """Stop working on it."""
        _log.info("run stopped", run=self.log.id, why=why)
        if self.task is not None:
            self.task.cancel()


def check_queue(queued: int, most: int) -> None:
    """Raise Overloaded where no more may be queued."""
    if queued >= most:
        raise Overloaded(
            "Too many background responses are queued; try again later.", headers=_LATER
        )


def check_room(running: Iterable[Live], owner: str, most: int, of_owner: int | None) -> None:
    """Raise Overloaded where another run that cannot be queued has no room: ``most`` may run at
    once in this process, and ``of_owner`` of this owner.
    """
    owners = [live.owner for live in running if live.counts]
    if len(owners) >= most or (of_owner is not None and owners.count(owner) >= max(of_owner, 1)):
        raise Overloaded(
            "Too many background responses are running; one whose tools have credentials cannot "
            "be queued. Try again later.",
            headers=_LATER,
        )
