"""One stored response, and how hidden reasoning comes back into items.

What a client writes as an id may be anything, and never reaches SQL as it is.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import orjson

from router.response.builder import output_text

__all__ = [
    "ENCRYPTED",
    "StoredResponse",
    "is_id",
    "item_key",
    "items_with",
    "key_of",
    "keys_of",
    "with_hidden",
]

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


def is_id(value: str) -> bool:
    """Whether this can be the id of something stored; what cannot is simply not there."""
    return _ID.fullmatch(value) is not None


def item_key(ident: str) -> str:
    """What an item is found by: its id, or a hash where that is not a plain one.

    Items keep the ids that endpoints gave them, and some of those are long and full of signs.
    """
    if _ID.fullmatch(ident) is not None:
        return ident
    return "~" + sha256(ident.encode("utf-8", "surrogatepass")).hexdigest()


def key_of(item: Mapping[str, Any]) -> str:
    """The key of this item; "" for one that has no id and cannot be found by it."""
    ident = item.get("id")
    return item_key(ident) if isinstance(ident, str) else ""


def keys_of(items: Iterable[Any]) -> list[str]:
    """The keys of those items that have one."""
    keys = []
    for item in items:
        ident = item.get("id") if isinstance(item, dict) else None
        if isinstance(ident, str):
            keys.append(item_key(ident))
    return keys


ENCRYPTED: Final = "reasoning.encrypted_content"
"""The ``include`` that shows encrypted reasoning to the client."""


@dataclass(slots=True)
class StoredResponse:
    """A row of ``responses``, made by ``of``.

    ``body`` is the Response object as JSON without ``output`` and ``output_text``; ``input`` and
    ``output`` are JSON arrays of items, ``input`` of this request's own with their ids.
    ``encrypted_reasoning`` is a JSON object: sealed encrypted reasoning, which the client did not
    ask for, by item id. ``resumable`` says that its stream can be replayed, ``account`` which
    endpoint account answered. ``created_at`` is in unix seconds. ``made`` and ``sent`` are the keys
    of the items in ``output`` and ``input``; None where they are not at hand.
    """

    id: str
    owner: str
    status: str
    created_at: int
    background: bool
    resumable: bool
    parent: str | None
    conversation: str | None
    account: str | None
    body: bytes
    input: bytes
    output: bytes
    encrypted_reasoning: bytes | None
    made: Sequence[str] | None = None
    sent: Sequence[str] | None = None

    @classmethod
    def of(
        cls,
        response: dict[str, Any],
        *,
        owner: str,
        request_items: Sequence[dict[str, Any]],
        encrypted_reasoning: Mapping[str, str],
        parent: str | None,
        conversation: str | None,
        account: str | None,
        background: bool,
        resumable: bool,
    ) -> StoredResponse:
        """The row for this Response object; ``request_items`` are the request's, with their ids."""
        body = dict(response)
        output = body.pop("output", [])
        body.pop("output_text", None)
        return cls(
            id=body["id"],
            owner=owner,
            status=body["status"],
            created_at=int(body["created_at"]),
            background=background,
            resumable=resumable,
            parent=parent,
            conversation=conversation,
            account=account,
            body=orjson.dumps(body),
            input=orjson.dumps(request_items),
            output=orjson.dumps(output),
            encrypted_reasoning=orjson.dumps(encrypted_reasoning) if encrypted_reasoning else None,
            made=keys_of(output),
            sent=keys_of(request_items),
        )

    def public(self, include: Container[str] = ()) -> bytes:
        """The Response object as JSON; hidden reasoning is in it where ``include`` asks for it."""
        output = items_with(self.output, self.encrypted_reasoning if ENCRYPTED in include else None)
        return orjson.dumps(
            {
                **orjson.loads(self.body),
                "status": self.status,
                "output": output,
                "output_text": output_text(output),
            }
        )

    def input_items(self, include: Container[str] = ()) -> list[dict[str, Any]]:
        """The items that came with the request, in order; ``include`` as in ``public``."""
        return items_with(self.input, self.encrypted_reasoning if ENCRYPTED in include else None)


def items_with(items: bytes, encrypted_reasoning: bytes | None) -> list[dict[str, Any]]:
    """The items of a JSON array, with the reasoning of ``encrypted_reasoning`` (by item id) put
    back.

    What an endpoint sent as an item and is not even an object is left out.
    """
    loaded = [item for item in orjson.loads(items) if isinstance(item, dict)]
    if encrypted_reasoning is not None:
        blobs = orjson.loads(encrypted_reasoning)
        for item in loaded:
            ident = item.get("id")
            if isinstance(ident, str):
                with_hidden(item, blobs.get(ident))
    return loaded


def with_hidden(item: dict[str, Any], blob: str | None) -> dict[str, Any]:
    """``item`` itself, its encrypted reasoning put back where it has one."""
    if blob is not None and item.get("type") == "reasoning":
        item["encrypted_content"] = blob
    return item
