"""The one response that the client is given, made of the answers of several turns.

Every turn is a response of its own, with its own events. Those of its items are passed on, with
their places and numbers in the one response; the calls of hosted tools are left out, and shown as
the items of those tools instead, once they are run. What begins and ends a turn is not shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from router.core.exchange import ClientGone, Exchange, Sink
from router.core.response_lifecycle import client_headers, persist, persist_whole
from router.errors import RouterError
from router.response.builder import ResponseBuilder, StreamState
from router.response.frame import OPENING, TERMINAL, Frame
from router.response.hosted_events import Event, begin_events, end_events
from router.response.tokens import response_usage
from router.tools.citing import Citing
from router.tools.code_interpreter.citations import NamedFile
from router.tools.file_search.citations import FileSource
from router.tools.web_search.outcome import WebSource

__all__ = ["LoopAnswer", "added_usage"]

_NO_STATUS: Final = frozenset({"compaction", "mcp_approval_request", "mcp_list_tools"})

Item = dict[str, Any]


class LoopAnswer:
    """Sends the client what comes of the turns. ``is_hosted`` says whether an item is a call of a
    tool that is run here; ``first_output`` is called when the first output is about to leave.

    ``output`` are the items that are done, ``encrypted`` their encrypted reasoning, which is kept
    and not shown, by item id. ``usage`` is that of all turns. ``sources`` are the pages, and
    ``files`` the results of files, that the model has been shown, and ``made`` the files by path
    that its code has made: it may cite all of them. ``tool_tokens`` are those of the tools'
    results, about: the model has read them as input.
    """

    def __init__(
        self,
        exchange: Exchange,
        sink: Sink,
        builder: ResponseBuilder,
        is_hosted: Callable[[Item], bool],
        first_output: Callable[[], None],
    ) -> None:
        self._exchange = exchange
        self._sink = sink
        self._builder = builder
        self._is_hosted = is_hosted
        self._first_output = first_output
        self._headers: dict[str, str] = {}
        self._open_item: Item | None = None
        self._places: dict[Any, int | None] = {}
        self._next = 0
        self._held: list[Event] = []
        self._citing: Citing | None = None
        self.sources: list[WebSource] = []
        self.files: list[FileSource] = []
        self.made: dict[str, NamedFile] = {}
        self.output: list[Item] = []
        self.encrypted: dict[str, str] = {}
        self.usage: dict[str, Any] | None = None
        self.tool_tokens = 0

    @property
    def stream(self) -> bool:
        """Whether the client is sent events."""
        return not self._builder.muted

    @property
    def opened(self) -> bool:
        """Whether the client has had the head of a stream."""
        return self._sink.opened

    def open(self, headers: Mapping[str, str], model: str | None = None) -> None:
        """Begin the client's stream, with these headers of the first turn's answer, or keep the
        headers for an answer in one piece. ``model`` is that of a fallback, which answers.
        """
        self._headers = {**self._headers, **headers}
        if model is not None:
            self._builder.served_by(model)
        if not self.stream:
            return
        if not self._sink.opened:
            self._sink.open(client_headers(self._exchange, self._headers))
        if frames := self._opening():
            self._sink.feed(frames)

    def _opening(self) -> list[Frame]:
        """The events that begin the response, with what waited for them."""
        held, self._held = self._held, []
        return [*self._builder.open(), *(self._builder.event(*event) for event in held)]

    def begin_turn(self) -> None:
        """What is relayed from here on are the events of another turn."""
        self._places = {}
        self._citing = None
        if self.sources or self.files or self.made:
            made = tuple(self.made.values())
            self._citing = Citing(tuple(self.sources), tuple(self.files), made)

    def relay(self, batch: Sequence[Frame]) -> None:
        """Pass a turn's events on, but for what the client is not to see of them."""
        events: list[Event] = []
        for frame in batch:
            if (event := self._relayed(frame)) is None:
                continue
            events += [event] if self._citing is None else self._citing.event(*event)
        if events:
            self._send(events)

    def _relayed(self, given: Frame) -> tuple[str, dict[str, Any]] | None:
        if given.type in OPENING or given.type in TERMINAL:
            return None
        event = given.json()
        if given.type == "response.output_item.added":
            item = event["item"]
            hosted = self._is_hosted(item)
            self._places[event["output_index"]] = None if hosted else self._next
            self._next += not hosted
        fields = {k: v for k, v in event.items() if k not in ("type", "sequence_number")}
        if "output_index" in event:
            place = self._places.get(event["output_index"])
            if place is None:
                return None
            fields["output_index"] = place
        if "response_id" in fields:
            fields["response_id"] = self._builder.id
        return given.type, fields

    def end_turn(self, response: Mapping[str, Any], encrypted: Mapping[str, str]) -> None:
        """The turn's answer is over: this is its final Response object."""
        for item in response["output"]:
            if self._is_hosted(item):
                continue
            self.output.append(item if self._citing is None else self._citing.cited(item))
        self._next = len(self.output)
        self.encrypted.update(encrypted)
        self.usage = added_usage(self.usage, response.get("usage"))

    def begin(self, item: Item) -> None:
        """Announce an item of the router's own, which is worked on from now on."""
        self._open_item = item
        self._send(begin_events(item, len(self.output)))

    def end(self, fields: Mapping[str, Any], *, failed: bool = False) -> None:
        """The announced item is done; ``fields`` are those that differ now."""
        assert self._open_item is not None
        item = {**self._open_item, **fields}
        if item["type"] not in _NO_STATUS:
            item["status"] = fields.get("status") or ("failed" if failed else "completed")
        events = end_events(item, len(self.output), failed=failed)
        self._open_item = None
        self.output.append(item)
        self._next = len(self.output)
        self._send(events)

    def show(self, item: Item) -> None:
        """An item that is done as soon as it begins."""
        self.begin(item)
        self.end({})

    def _send(self, events: list[Event]) -> None:
        if not self.stream:
            return
        if self._builder.state is StreamState.NEW:
            # Nothing has been asked yet: what goes wrong there is still an HTTP error.
            self._held.extend(events)
            return
        self._first_output()
        self._sink.feed([self._builder.event(*event) for event in events])

    async def flushed(self) -> None:
        """Wait until what was sent is where it is to survive; raises ClientGone."""
        await self._sink.resumed()

    async def complete(self, turn: Mapping[str, Any]) -> None:
        """End the response as its last turn ended."""
        changes: dict[str, Any] = {
            name: turn[name] for name in ("error", "incomplete_details") if turn.get(name)
        }
        if turn.get("service_tier") is not None:
            changes["service_tier"] = turn["service_tier"]
        await self._finish(turn["status"], changes)

    async def fail(self, error: RouterError) -> None:
        """End a stream that has begun with ``response.failed``; raises the error before."""
        if not self.stream or not self._sink.opened:
            raise error
        self._exchange.result.fail(error.code)
        await self._finish("failed", {"error": error.response_error()})

    async def _finish(self, status: str, changes: Mapping[str, Any]) -> None:
        builder = self._builder
        if self._open_item is not None:
            self.end({"status": "incomplete"}, failed=True)
        opening = self._opening()
        if status == "completed":
            changes = {**changes, "completed_at": int(builder.now())}
        if self.usage is not None and self.tool_tokens:
            told = self.usage["output_tokens_details"]
            self.usage["output_tokens_details"] = {**told, "tool_output_tokens": self.tool_tokens}
        final = builder.snapshot(status, self.output, self.usage, **changes)
        last = builder.end(final)
        self._exchange.result.usage = self.usage
        if not self.stream:
            body = await persist_whole(self._exchange, final, self.encrypted, orjson.dumps(final))
            self._sink.finish(200, body, client_headers(self._exchange, self._headers))
            return
        if not self._sink.opened:
            self._sink.open(client_headers(self._exchange, self._headers))
        if opening:
            self._sink.feed(opening)
        last = await persist(self._exchange, builder, final, self.encrypted, last)
        self._sink.feed([last])
        self._sink.end()

    def abandon(self) -> None:
        """The client is gone: what there is of a response that was to be stored is kept."""
        record = self._exchange.record
        if record is None:
            return
        output = list(self.output)
        if self._open_item is not None:
            output.append({**self._open_item, "status": "incomplete"})
        with contextlib.suppress(ClientGone):
            record.abandon(self._builder.snapshot("cancelled", output, self.usage), self.encrypted)


def added_usage(one: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any] | None:
    """Two Responses ``usage`` objects added up; None where neither is known."""
    if one is None or other is None:
        return other if one is None else one
    cached = _detail(one, other, "input_tokens_details", "cached_tokens")
    total = response_usage(
        one["input_tokens"] + other["input_tokens"],
        one["output_tokens"] + other["output_tokens"],
        cached=cached,
        reasoning=_detail(one, other, "output_tokens_details", "reasoning_tokens"),
    )
    if one.get("estimated") or other.get("estimated"):
        total["estimated"] = True
    return total


def _detail(one: Mapping[str, Any], other: Mapping[str, Any], field: str, name: str) -> int:
    return sum((usage.get(field) or {}).get(name) or 0 for usage in (one, other))
