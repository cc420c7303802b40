"""Responses that live as long as a connection: what ``store: false`` leaves for the next turn.

A client that speaks over a WebSocket sends only what is new and names the response that it goes on
from, also where nothing is to be stored. Those responses are kept here, in memory, for the
connection that they were made over. ``ChainMemory`` bounds what all connections keep together;
what was used longest ago goes first, and its client is told that there is no such response, as it
would be after a reconnect.

Source: OpenAI's guide to the WebSocket mode of the Responses API, "How continuation works".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.core.exchange import Exchange
from router.core.response_lifecycle import new_id
from router.dialects.history import match
from router.dialects.responses.input_items import looks_up
from router.dialects.responses.schema import stored_items
from router.errors import InvalidRequest
from router.response.frame import Frame
from router.sessions.resolve import RequestItems
from router.state.history import MAX_BYTES, MAX_TURNS, ResponseHistory
from router.state.items import items_with
from router.state.responses import ResponseStore, StoredResponse

__all__ = ["ChainMemory", "Chains", "SocketStream", "check_outputs"]

_MAX_TOTAL: Final = 256 * 1024 * 1024
"""Bytes of items, as JSON, that all connections of one router keep together."""

_CONTINUED: Final = frozenset({"completed", "incomplete"})


class ChainMemory:
    """What the connections of one router keep, ``limit`` bytes at most."""

    def __init__(self, limit: int = _MAX_TOTAL) -> None:
        self._limit = limit
        self._entries: OrderedDict[tuple[Chains, str], int] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, chains: Chains, ident: str, size: int) -> None:
        """A connection keeps a response of ``size`` bytes; others may have to go for it."""
        self._entries[chains, ident] = size
        self.size += size
        while self.size > self._limit:
            owner, oldest = next(iter(self._entries))
            owner.drop(oldest)

    def used(self, chains: Chains, ident: str) -> None:
        """It goes later than what was not used since."""
        self._entries.move_to_end((chains, ident))

    def remove(self, chains: Chains, ident: str) -> None:
        """The connection keeps it no longer."""
        self.size -= self._entries.pop((chains, ident))


class Chains:
    """The responses that one connection keeps: ``limit`` bytes of items at most, as many as one
    request may carry.
    """

    def __init__(
        self, memory: ChainMemory, responses: ResponseStore, limit: int = MAX_BYTES
    ) -> None:
        self._memory = memory
        self._responses = responses
        self._limit = limit
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._failed: set[str] = set()
        self._size = 0
        self._closed = False

    def __contains__(self, ident: object) -> bool:
        """Whether it is kept, and may be continued."""
        return ident in self._kept and ident not in self._failed

    def keep(self, stored: StoredResponse, stream: str | None) -> None:
        """Keep a response of the stream ``stream`` (None: the default one)."""
        if self._closed:
            return  # it came to its end just as the connection did
        size = len(stored.input) + len(stored.output) + len(stored.encrypted_reasoning or b"")
        self.drop(stored.id)
        self._kept[stored.id] = _Kept(stored, stream, size)
        self._size += size
        self._memory.add(self, stored.id, size)
        while self._kept and (self._size > self._limit or len(self._kept) > MAX_TURNS):
            self.drop(next(iter(self._kept)))

    def failed(self, ident: str, stream: str | None) -> None:
        """A request of this stream that went on from ``ident`` failed: nothing goes on from there
        any more, and the client begins anew. What another stream has made stays for that one, and
        what has gone on from it before can be continued.
        """
        kept = self._kept.get(ident)
        if kept is not None and kept.stream == stream:
            self._failed.add(ident)

    def model(self, ident: str | None) -> str | None:
        """The model that answered it, as its client calls it; None where it is not kept."""
        kept = self._kept.get(ident or "")
        return None if kept is None else orjson.loads(kept.stored.body).get("model")

    def drop(self, ident: str) -> None:
        """Keep it no longer."""
        self._failed.discard(ident)
        if (kept := self._kept.pop(ident, None)) is not None:
            self._size -= kept.size
            self._memory.remove(self, ident)

    def close(self) -> None:
        """The connection is over."""
        self._closed = True
        for ident in list(self._kept):
            self.drop(ident)

    async def history(self, owner: str, ident: str) -> ResponseHistory | None:
        """The response with everything before it, which may be stored; None where some of it is
        gone. Raises like ``ResponseStore.history``.
        """
        chain: list[StoredResponse] = []
        parent: str | None = ident
        if ident in self._failed:
            return None
        while (kept := self._kept.get(parent or "")) is not None and kept.stored.owner == owner:
            chain.append(kept.stored)
            parent = kept.stored.parent
        if not chain:
            return await self._responses.history(owner, ident)
        items: list[dict[str, Any]] = []
        if parent is not None:
            before = await self._responses.history(owner, parent)
            if before is None:
                return None
            items = before.items
        for one in reversed(chain):
            self._touch(one.id)
            for given in (one.input, one.output):
                items += items_with(given, one.encrypted_reasoning)
        return ResponseHistory(chain[0].status, chain[0].account, items)

    async def find_items(self, owner: str, ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """Items with these ids: those that are kept, else stored ones. Raises like
        ``ResponseStore.find_items``.
        """
        found = self.kept_items(owner, ids)
        if missing := [ident for ident in ids if ident not in found]:
            found |= await self._responses.find_items(owner, missing)
        return found

    def kept_items(self, owner: str, ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """Those of the items with these ids that are kept, hidden reasoning put back."""
        found: dict[str, dict[str, Any]] = {}
        left = {orjson.dumps(ident): ident for ident in ids}
        for one in [kept.stored for kept in reversed(self._kept.values())]:
            for given in (one.output, one.input) if one.owner == owner else ():
                if not any(written in given for written in left):
                    continue  # which spares reading most of them
                for item in items_with(given, one.encrypted_reasoning):
                    if left.pop(orjson.dumps(item.get("id")), None) is not None:
                        found[item["id"]] = item
                        self._touch(one.id)
        return found

    def _touch(self, ident: str) -> None:
        if ident in self._kept:  # it may have gone while the database was asked
            self._kept.move_to_end(ident)
            self._memory.used(self, ident)


@dataclass(frozen=True, slots=True)
class _Kept:
    stored: StoredResponse
    stream: str | None
    size: int


@dataclass(frozen=True, slots=True)
class SocketStream:
    """One stream of a connection, and what its requests go on from. ``name``: its ``stream_id``."""

    chains: Chains
    name: str | None

    def suffices(self, body: Mapping[str, Any], owner: str) -> bool:
        """Whether the database need not be asked for what this request refers to."""
        items, previous = body.get("input"), body.get("previous_response_id")
        ids = {one["id"] for one in items if looks_up(one)} if isinstance(items, list) else set()
        return (
            (previous is None or previous in self.chains)
            and not body.get("conversation")
            and (not ids or ids == self.chains.kept_items(owner, ids).keys())
        )

    def holds(self, body: Mapping[str, Any]) -> bool:
        """Whether what the request goes on from is kept here, and so stored nowhere."""
        return body.get("previous_response_id") in self.chains

    def record(self, exchange: Exchange, own: RequestItems | str | list[dict[str, Any]]) -> None:
        """Have the exchange's response kept; ``own`` are its request's items."""
        exchange.record = _ChainRecord(self, exchange, own)


@dataclass(slots=True, eq=False)
class _ChainRecord:
    """Implements ``router.core.exchange.ExchangeRecord`` for what is not to be stored."""

    _socket: SocketStream
    _exchange: Exchange
    _own: RequestItems | str | list[dict[str, Any]]

    async def finish(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str], last: Frame | None
    ) -> bool:
        """See ``ExchangeRecord.finish``."""
        if response["status"] in _CONTINUED:
            stored = await self._exchange.compute(self._stored, response, encrypted_reasoning)
            self._socket.chains.keep(stored, self._socket.name)
        return True

    def abandon(self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]) -> None:
        """See ``ExchangeRecord.abandon``: the connection is over, and what it kept with it."""

    def _stored(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]
    ) -> StoredResponse:
        exchange, own = self._exchange, self._own
        if isinstance(own, RequestItems):
            items = own.items
            encrypted_reasoning = {**own.encrypted_reasoning, **encrypted_reasoning}
        else:
            items = stored_items(own, new_id)
        return StoredResponse.of(
            {"id": response["id"], "status": response["status"], "created_at": 0}
            | {"output": response["output"], "model": response.get("model")},
            owner=exchange.context.caller,
            request_items=items,
            encrypted_reasoning=encrypted_reasoning,
            parent=exchange.body.get("previous_response_id"),
            conversation=None,
            account=exchange.result.account,
            background=False,
            resumable=False,
        )


def check_outputs(history: list[dict[str, Any]], new_items: list[dict[str, Any]]) -> None:
    """Raise InvalidRequest for a new output that answers no call, as OpenAI does."""
    orphans = [place for place in match([*history, *new_items]).orphans if place >= len(history)]
    if orphans:
        item = new_items[min(orphans) - len(history)]
        raise InvalidRequest(
            "No tool call found for function call output with call_id "
            f"{str(item.get('call_id'))[:200]}.",
            param="input",
        )
