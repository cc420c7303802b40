"""Finding what a request refers to: its chain, its conversation, its items.

What goes upstream is the whole history as full items, since nothing is stored there. What is kept
of the request are its own items, each with an id.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

from router.core.exchange import Exchange
from router.core.response_lifecycle import new_id
from router.dialects.history import consistent
from router.dialects.responses.input_items import check_items, is_sound, item_type, looks_up
from router.dialects.responses.schema import stored_items
from router.errors import InvalidRequest, NotFound
from router.state.conversations import ConversationStore
from router.state.history import ResponseHistory
from router.state.responses import ResponseStore, StoredResponse
from router.state.turn_lock import Turn, TurnLock

__all__ = [
    "HistoryResolver",
    "HistorySource",
    "RequestItems",
    "conversation_id",
    "with_history",
]

_FINISHED: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})


@dataclass(slots=True)
class RequestItems:
    """A request's own items as they are kept, and encrypted reasoning that belongs to them.

    Each of the ``items`` has an id. ``orders`` are items that are told to the endpoint and not
    kept. ``whole``: what the request continues is among its items, since it is stored nowhere.
    """

    items: list[dict[str, Any]]
    encrypted_reasoning: dict[str, str]
    orders: list[dict[str, Any]]
    whole: bool = False

    def upstream(self) -> list[dict[str, Any]]:
        """The items as an endpoint gets them, with what is hidden from the client."""
        return [*(_revealed(item, self.encrypted_reasoning) for item in self.items), *self.orders]

    def after(self, history: list[dict[str, Any]]) -> RequestItems:
        """These items with all that is before them."""
        before, encrypted_reasoning = [], dict(self.encrypted_reasoning)
        for item in history:
            blob, ident = item.get("encrypted_content"), item.get("id")
            if isinstance(blob, str) and isinstance(ident, str) and item["type"] == "reasoning":
                encrypted_reasoning[ident] = blob
                item = {k: v for k, v in item.items() if k != "encrypted_content"}
            before.append(item)
        return RequestItems([*before, *self.items], encrypted_reasoning, self.orders, True)

    def rename(self, taken: Container[str]) -> None:
        """Give another id to each item whose id is ``taken``."""
        for i, item in enumerate(self.items):
            if item["id"] in taken:
                [renamed] = stored_items([item], new_id, taken)
                if (blob := self.encrypted_reasoning.get(item["id"])) is not None:
                    self.encrypted_reasoning[renamed["id"]] = blob
                self.items[i] = renamed


class HistorySource(Protocol):
    """Where previous responses, and items of theirs, are found."""

    async def history(self, owner: str, ident: str) -> ResponseHistory | None:
        """See ``router.state.history.read_history``."""
        ...

    async def find_items(self, owner: str, ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """See ``router.state.references.find_items``."""
        ...


class HistoryResolver:
    """Looks up what requests refer to. Everything is looked up by owner."""

    def __init__(
        self,
        responses: ResponseStore,
        conversations: ConversationStore,
        lock: TurnLock,
    ) -> None:
        self._responses = responses
        self._conversations = conversations
        self._lock = lock

    async def request_items(
        self,
        exchange: Exchange,
        taken: Container[str] = (),
        source: HistorySource | None = None,
    ) -> RequestItems:
        """The request's own items; references among them are replaced by what they name.

        ``taken`` are ids that they may not have; ``source`` as for ``history``. Raises NotFound for
        a reference to nothing, StateUnavailable.
        """
        given = exchange.body.get("input") or []
        encrypted_reasoning: dict[str, str] = {}
        if isinstance(given, list):
            wanted = {item["id"] for item in given if looks_up(item)}
            if wanted:
                source = source or self._responses
                found = await source.find_items(exchange.context.caller, sorted(wanted))
                given = [
                    _found(item, i, found, encrypted_reasoning) for i, item in enumerate(given)
                ]
                check_items(given, "input")  # what an endpoint once made may be anything
        items = await exchange.compute(stored_items, given, new_id)
        request_items = RequestItems(items, encrypted_reasoning, _orders(given))
        if taken:
            request_items.rename(taken)
        return request_items

    async def check(self, exchange: Exchange) -> None:
        """Raise InvalidRequest or NotFound for a history that is not there."""
        body = exchange.body
        if previous := body.get("previous_response_id"):
            stored = await self._responses.get(exchange.context.caller, previous)
            _check_previous(previous, stored.status if stored else None)
        conversation = conversation_id(body)
        if (
            conversation
            and await self._conversations.get(exchange.context.caller, conversation) is None
        ):
            raise _no_conversation(conversation)

    async def history(
        self, exchange: Exchange, source: HistorySource | None = None
    ) -> list[dict[str, Any]]:
        """The items before the request's own, oldest first; of its conversation it has the turn.

        A previous response is looked for in ``source``, else among the stored ones. What an
        endpoint made of items that nobody can read is left out. Raises like ``check``.
        """
        found = await self._history(exchange, source or self._responses)
        return [item for item in found if is_sound(item)]

    async def _history(self, exchange: Exchange, source: HistorySource) -> list[dict[str, Any]]:
        body = exchange.body
        if previous := body.get("previous_response_id"):
            chain = await source.history(exchange.context.caller, previous)
            _check_previous(previous, chain.status if chain else None)
            return chain.items if chain else []
        if conversation := conversation_id(body):
            items = await self._conversations.history(exchange.context.caller, conversation)
            if items is None:
                raise _no_conversation(conversation)
            return items
        return []

    async def model_before(self, owner: str, body: Mapping[str, Any]) -> str | None:
        """The model of the response that this request continues, or of the last one in its
        conversation; None where there is none. Raises StateUnavailable.
        """
        before: StoredResponse | None = None
        if previous := body.get("previous_response_id"):
            before = await self._responses.get(owner, previous)
        elif conversation := conversation_id(body):
            before = await self._responses.last_in(owner, conversation)
        model = orjson.loads(before.body).get("model") if before is not None else None
        return model if isinstance(model, str) else None

    async def turn(self, exchange: Exchange, timeout: float) -> Turn | None:
        """The turn in the request's conversation, waited for; None where it has none.

        Raises NotFound, and Conflict after ``timeout`` seconds.
        """
        conversation = conversation_id(exchange.body)
        if conversation is None:
            return None
        turn = await self._lock.acquire(exchange.context.caller, conversation, timeout)
        if turn is None:
            raise _no_conversation(conversation)
        return turn


def conversation_id(body: Mapping[str, Any]) -> str | None:
    """The id of the conversation that a request names."""
    conversation = body.get("conversation")
    known = conversation.get("id") if isinstance(conversation, dict) else conversation
    return known if isinstance(known, str) else None


def with_history(
    body: dict[str, Any], history: list[dict[str, Any]], request_items: RequestItems
) -> dict[str, Any]:
    """The body whose input is everything that the model is to see."""
    new = request_items.upstream()
    return {**body, "input": [*consistent(history, new), *new]}


def _orders(given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(given, str):
        return []
    return [item for item in given if item.get("type") == "compaction_trigger"]


def _found(
    item: dict[str, Any],
    index: int,
    found: Mapping[str, dict[str, Any]],
    encrypted_reasoning: dict[str, str],
) -> dict[str, Any]:
    if not looks_up(item):
        return item
    ident = item["id"]
    known = found.get(ident)
    if known is None:
        if item_type(item) == "item_reference":
            raise NotFound.of("Item", ident, param=f"input[{index}]")
        return item
    blob = known.get("encrypted_content")
    if known.get("type") == "reasoning" and isinstance(blob, str):
        encrypted_reasoning[ident] = blob
        known = {k: v for k, v in known.items() if k != "encrypted_content"}
    return known


def _revealed(item: dict[str, Any], encrypted_reasoning: Mapping[str, str]) -> dict[str, Any]:
    blob = encrypted_reasoning.get(item.get("id", ""))
    return item if blob is None else {**item, "encrypted_content": blob}


def _check_previous(ident: str, status: str | None) -> None:
    if status is None:
        raise InvalidRequest(
            NotFound.of("Previous response", ident).message,
            code="previous_response_not_found",
            param="previous_response_id",
        )
    if status not in _FINISHED:
        raise InvalidRequest(
            f"The response '{ident}' is {status}: wait until it is finished, or cancel it.",
            code="invalid_value",
            param="previous_response_id",
        )


def _no_conversation(ident: str) -> NotFound:
    return NotFound.of("Conversation", ident)
