"""What a client was promised, and what it has seen."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

__all__ = ["TERMINAL", "Kept", "Ledger", "Talk", "Turn", "text_of_output"]

TERMINAL = frozenset({"completed", "incomplete", "failed", "cancelled"})
"""The statuses that never change again."""


@dataclass(slots=True)
class Kept:
    """A response whose id the client knows.

    ``promised`` says that it has to be there; ``final`` is the finished Response object that was
    acknowledged. ``events`` has the data of events that were seen, by number. ``turn`` is which
    turn of its chain or conversation it is, where that is known; ``refers`` says that it is part
    of one. Times are of ``time.monotonic``.
    """

    id: str
    text: str
    resumable: bool
    promised: bool
    turn: int | None = None
    refers: bool = False
    created: float = field(default_factory=time.monotonic)
    final: dict[str, Any] | None = None
    events: dict[int, bytes] = field(default_factory=dict)
    deleted: bool = False

    @property
    def completed(self) -> bool:
        """Whether it ended well."""
        return self.final is not None and self.final["status"] == "completed"


@dataclass(slots=True)
class Turn:
    """One turn of a conversation; ``over`` is when its end was known, infinity before."""

    marker: str
    sent: float
    over: float = float("inf")
    kept: Kept | None = None


@dataclass(slots=True)
class Talk:
    """A conversation and every turn that was tried in it."""

    id: str
    turns: dict[str, Turn] = field(default_factory=dict)


@dataclass(slots=True)
class Ledger:
    """Everything that a client has been promised, and what was found to be broken.

    ``restarts`` are the times at which a router was started again after a kill.
    """

    kept: dict[str, Kept] = field(default_factory=dict)
    talks: list[Talk] = field(default_factory=list)
    unstored: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)
    recovery: list[float] = field(default_factory=list)
    """Seconds from the last restart to the end of each run that was begun before it."""

    def know(self, kept: Kept) -> Kept:
        """Enter a response; its id must be new."""
        if kept.id in self.kept:
            self.broken(f"{kept.id}: the id was given twice")
        self.kept[kept.id] = kept
        return kept

    def acknowledge(self, kept: Kept, final: dict[str, Any]) -> None:
        """The client has got the finished Response object."""
        if kept.final is not None and kept.final != final:
            self.broken(f"{kept.id}: two different endings: {kept.final} and {final}")
        if final["id"] != kept.id or final["status"] not in TERMINAL:
            self.broken(f"{kept.id}: not a finished response: {final}")
        if kept.final is None:
            self.counts["acknowledged"] += 1
            self.counts[f"ended {final['status']}"] += 1
            if kept.resumable:
                self._time_recovery(kept, final["status"])
        kept.promised = True
        kept.final = final

    def _time_recovery(self, kept: Kept, status: str) -> None:
        if self.restarts and kept.created < self.restarts[-1]:
            self.counts[f"run outlived a kill: {status}"] += 1
            self.recovery.append(time.monotonic() - self.restarts[-1])

    def saw(self, kept: Kept, number: int, data: bytes) -> None:
        """The client has got an event; the same number always has the same content."""
        if kept.events.setdefault(number, data) != data:
            self.broken(f"{kept.id}: event {number} changed: {kept.events[number]!r} -> {data!r}")

    def broken(self, what: str) -> None:
        """A promise that was not kept."""
        self.violations.append(what[:2000])


def text_of_output(response: dict[str, Any]) -> str:
    """The text of a Response object's messages, joined."""
    return "".join(
        part.get("text", "")
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )
