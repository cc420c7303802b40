"""Whether the database answers: what the writes, the reads and the probes find out."""

from __future__ import annotations

import time

from router.errors import StateUnavailable
from router.telemetry.log import get_logger

__all__ = ["Fault", "Health", "Unreachable", "unavailable"]

_log = get_logger("router.state")


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


class Health:
    """Says once that the database is down, and once that it is back."""

    def __init__(self) -> None:
        self.up = True
        self.heard = time.monotonic()

    def answered(self) -> None:
        """It did what it was asked."""
        self.heard = time.monotonic()
        if not self.up:
            self.up = True
            _log.info("the database answers again")

    def lost(self, reason: str) -> None:
        """It did not; ``reason`` is for the operator."""
        if self.up:
            self.up = False
            _log.error("the database does not answer", error=reason)
