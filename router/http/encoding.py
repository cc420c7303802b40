"""Answers a request of another API with a response: what passes to its client is told anew.

Such a request is translated into one of the Responses API, and goes its whole way as that: plugins,
cache, choice of an endpoint, translation, accounts. Only its last step differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from router.core.exchange import Exchange, PassingSink, Sink
from router.core.plugin_set import proceed
from router.plugin import Proceed
from router.response.frame import Frame

__all__ = ["ResponseEncoder", "encoded_by"]


class ResponseEncoder(Protocol):
    """Makes one client's answer of a response. Pure: one for each exchange."""

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """The client's frames for these events of the response's stream, its terminal event
        among them at the end: ``response.failed`` too.
        """
        ...

    def whole(self, body: bytes) -> bytes:
        """The client's body for a finished Response object; raises RouterError for a failed one."""
        ...


_OK: Final = 200


def encoded_by(encoder: ResponseEncoder) -> Proceed:
    """What answers an exchange whose body is a Responses request through ``encoder``."""

    async def answer(exchange: Exchange, sink: Sink) -> None:
        await proceed(exchange, _EncodingSink(sink, encoder))

    return answer


class _EncodingSink(PassingSink):
    """A ``Sink`` for events of a response, which ``encoder`` tells to another one."""

    def __init__(self, sink: Sink, encoder: ResponseEncoder) -> None:
        super().__init__(sink)
        self._encoder = encoder

    def feed(self, batch: Sequence[Frame]) -> None:
        if frames := self._encoder.frames(batch):
            self._sink.feed(frames)

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        if status == _OK:
            body = self._encoder.whole(body)
        self._sink.finish(status, body, headers)
