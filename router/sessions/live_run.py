"""A run of this process, and what its execution is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from router.sessions.event_log import RunLog
from router.telemetry.log import get_logger

__all__ = ["AtOnce", "Claimed", "Execute", "Live"]

_log = get_logger("router.runs")


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
