"""What tests of the plugin chain have in common."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from router.core.exchange import ClientGone
from router.response.frame import Frame

__all__ = ["HELLO", "Page", "broke"]

HELLO = Frame.of({"type": "hello"})


class Page:
    """A sink that keeps what it was given."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.opened = False
        self.paused = False
        self.gone = False

    async def resumed(self) -> None:
        self.paused = False

    def open(self, headers: Mapping[str, str]) -> None:
        self.opened = True
        self.said.append("open")

    def feed(self, batch: Sequence[Frame]) -> None:
        if self.gone:
            raise ClientGone
        self.said += [frame.type for frame in batch]

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.said.append(f"{status} {body.decode()}")

    def end(self) -> None:
        self.said.append("end")


def broke(log: list[MutableMapping[str, Any]]) -> list[str]:
    """Which plugins broke, according to the log."""
    return [f"{line['plugin']} {line['event']}" for line in log]
