"""One stored response, and how hidden reasoning comes back into items."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.response.builder import output_text
from router.state.ids import keys_of

__all__ = ["ENCRYPTED", "StoredResponse", "items_with", "with_hidden"]

ENCRYPTED: Final = "reasoning.encrypted_content"
"""The ``include`` that shows encrypted reasoning to the client."""


@dataclass(slots=True)
class StoredResponse:
    """A row of ``responses``, made by ``of``.

    ``body`` is the Response object as JSON without ``output`` and ``output_text``; ``input`` and
    ``output`` are JSON arrays of items, ``input`` of this request's own with their ids. ``hidden``
    is a JSON object: sealed encrypted reasoning, which the client did not ask for, by item id.
    ``resumable`` says that its stream can be replayed, ``account`` which endpoint account answered.
    ``created_at`` is in unix seconds. ``made`` and ``sent`` are the keys of the items in
    ``output`` and ``input``; None where they are not at hand.
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
    hidden: bytes | None
    made: Sequence[str] | None = None
    sent: Sequence[str] | None = None

    @classmethod
    def of(
        cls,
        response: dict[str, Any],
        *,
        owner: str,
        own_items: Sequence[dict[str, Any]],
        hidden: Mapping[str, str],
        parent: str | None,
        conversation: str | None,
        account: str | None,
        background: bool,
        resumable: bool,
    ) -> StoredResponse:
        """The row for this Response object; ``own_items`` are the request's, with their ids."""
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
            input=orjson.dumps(own_items),
            output=orjson.dumps(output),
            hidden=orjson.dumps(hidden) if hidden else None,
            made=keys_of(output),
            sent=keys_of(own_items),
        )

    def public(self, include: Container[str] = ()) -> bytes:
        """The Response object as JSON; hidden reasoning is in it where ``include`` asks for it."""
        output = items_with(self.output, self.hidden if ENCRYPTED in include else None)
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
        return items_with(self.input, self.hidden if ENCRYPTED in include else None)


def items_with(items: bytes, hidden: bytes | None) -> list[dict[str, Any]]:
    """The items of a JSON array, with the reasoning of ``hidden`` (by item id) put back.

    What an endpoint sent as an item and is not even an object is left out.
    """
    loaded = [item for item in orjson.loads(items) if isinstance(item, dict)]
    if hidden is not None:
        blobs = orjson.loads(hidden)
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
