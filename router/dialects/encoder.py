"""How a response is told to the client of another API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from router.response.frame import Frame

__all__ = ["Teller"]


class Teller(Protocol):
    """Makes one client's answer of a response. Pure: one for each exchange."""

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """The client's frames for these events of the response's stream, its terminal event
        among them at the end: ``response.failed`` too.
        """
        ...

    def whole(self, body: bytes) -> bytes:
        """The client's body for a finished Response object; raises RouterError for a failed one."""
        ...
