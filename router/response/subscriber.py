"""One answer for several clients: the frames that one is sent, as another's own.

An answer is made once, by one of the router's readers, for a *leader*; a follower has asked for
the same. What names the leader's request is replaced; all else is passed on as it is, the same
object and not even decoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from router.errors import RouterError
from router.response.builder import CONSTANT, ResponseBuilder, StreamState
from router.response.frame import OPENING, TERMINAL, Frame
from router.response.partial import DELTAS, TEXT_EVENTS, PartialOutput
from router.response.replay import OUTCOME, retold

__all__ = ["ChatFollower", "ResponseFollower"]

_DONE: Final = b"[DONE]"
_NO_CHOICES: Final = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_ID: Final = re.compile(rb'"id"\s*:\s*"[^"\\]{8,}"')
"""Where a chunk names its completion. A shorter id might stand for something else, too."""


class ResponseFollower:
    """Makes a leader's events those of ``builder``, whose sequence number and state follow.

    ``frames`` wants all of the leader's events from the first on, of a run in the foreground. Where
    the response builder was opened before, the leader's own opening is left out. ``final`` is the
    final Response object once there is one.
    """

    def __init__(self, builder: ResponseBuilder) -> None:
        self.builder = builder
        self.final: dict[str, Any] | None = None
        self._told = builder.dated
        self._opening: dict[str, Any] = {}
        self._done: list[Frame] = []
        self._open: list[Frame] = []

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """The leader's frames as this client's."""
        builder = self.builder
        mine: list[Frame] = []
        for frame in batch:
            kind = frame.type
            if kind in OPENING:
                self._begin(frame, mine)
            elif kind in TERMINAL:
                mine.append(builder.end(self._end(frame.json()["response"])))
            elif kind in TEXT_EVENTS:  # they have no response_id
                builder.sequence += 1
                self._open.append(frame)
                mine.append(frame)
            else:
                self._keep(frame)
                mine.append(self._named(frame))
        return mine

    def whole(self, final: Mapping[str, Any]) -> dict[str, Any]:
        """The leader's final Response object as this client's."""
        builder = self.builder
        builder.served_by(final["model"])
        if builder.state is StreamState.NEW:
            builder.advance(StreamState.OPENED)
        mine = self._end(final)
        builder.end(mine)
        return mine

    def fail(self, error: RouterError) -> list[Frame]:
        """The events that end the stream early: ``response.failed`` with the output so far.

        None where it has ended.
        """
        if self.builder.state is StreamState.ENDED:
            return []
        base = self.builder.snapshot(**{"status": "failed", **self._opening})
        frames = self.builder.fail(error, self._output(), base=base)
        self.final = self.builder.final
        return frames

    def _begin(self, frame: Frame, mine: list[Frame]) -> None:
        if self._told:
            return
        builder = self.builder
        response = frame.json()["response"]
        if builder.state is StreamState.NEW:
            builder.served_by(response["model"])
            builder.advance(StreamState.OPENED)
            self._opening = retold(builder, response, told=False)
            builder.shown = {n: self._opening[n] for n in CONSTANT if n in self._opening}
        opening = builder.snapshot(**{**self._opening, "status": response["status"]})
        mine.append(builder.event(frame.type, {"response": opening}))

    def _end(self, response: Mapping[str, Any]) -> dict[str, Any]:
        outcome = {name: response[name] for name in OUTCOME if name in response}
        fields = {**retold(self.builder, response, told=self._told), **outcome}
        self.final = self.builder.snapshot(**{**fields, **self.builder.shown})
        return self.final

    def _keep(self, frame: Frame) -> None:
        """Remember what ``fail`` has to show."""
        if frame.type == "response.output_item.done":
            self._done.append(frame)
            self._open = []
        else:
            self._open.append(frame)

    def _named(self, frame: Frame) -> Frame:
        """An event between the lifecycle's; one may name the response."""
        builder = self.builder
        builder.sequence += 1
        if b'"response_id"' not in frame.data or "response_id" not in frame.json():
            return frame
        return Frame.of({**frame.json(), "response_id": builder.id})

    def _output(self) -> list[dict[str, Any]]:
        partial = PartialOutput()
        for frame in (*self._done, *self._open):
            event, field = frame.json(), DELTAS.get(frame.type)
            if field is not None:
                partial.delta(field, event)
            else:
                partial.follow(frame.type, event)
        return partial.so_far()


class ChatFollower:
    """Makes a leader's chat completion this client's: with the id ``new_id``, and with the usage
    chunk only where ``include_usage`` says so.
    """

    def __init__(self, new_id: str, include_usage: bool) -> None:
        self._id = new_id
        self._include_usage = include_usage
        self._theirs = b""
        self._mine = b""

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """The leader's frames as this client's."""
        mine = []
        for frame in batch:
            data = frame.data
            if data == _DONE:
                mine.append(frame)
            elif self._include_usage or not _is_usage(data):
                mine.append(Frame(frame.type, self.whole(data)))
        return mine

    def whole(self, body: bytes) -> bytes:
        """The leader's chat completion, or one of its chunks, as this client's."""
        if not self._names_it_once(body):
            named = orjson.loads(body)
            if not isinstance(named.get("id"), str):
                return body  # an error
            self._learn(body, orjson.dumps(named["id"]))
            if not self._names_it_once(body):
                return orjson.dumps({**named, "id": self._id})
        return body.replace(self._theirs, self._mine)

    def _names_it_once(self, body: bytes) -> bool:
        return bool(self._theirs) and body.count(self._theirs) == 1

    def _learn(self, body: bytes, id: bytes) -> None:
        """How the leader's chunks name their completion; a server writes all of them alike."""
        known = _ID.search(body)
        alike = known is not None and known[0].endswith(id)
        self._theirs = known[0] if known is not None and alike else b""
        self._mine = self._theirs.removesuffix(id) + orjson.dumps(self._id)


def _is_usage(data: bytes) -> bool:
    """Whether it is the chunk that has the usage and nothing else."""
    if b'"usage"' not in data or not _NO_CHOICES.search(data):
        return False
    chunk = orjson.loads(data)
    return not chunk.get("choices") and bool(chunk.get("usage"))
