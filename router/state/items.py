"""Stored items: by what key each is found, and how hidden reasoning comes back into them.

What a client writes as an id may be anything, and never reaches SQL as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import count
from typing import Any, Final

import orjson

__all__ = [
    "ENCRYPTED",
    "PLAIN_ID",
    "is_id",
    "item_ids",
    "item_key",
    "items_with",
    "key_of",
    "origin",
    "with_hidden",
]

PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""What an id looks like that can be a key as it is."""


def is_id(value: str) -> bool:
    """Whether this can be the id of something stored; what cannot is simply not there."""
    return PLAIN_ID.fullmatch(value) is not None


def item_key(ident: str) -> str:
    """What an item is found by: its id, or a hash where that is not a plain one.

    Items keep the ids that endpoints gave them, and some of those are long and full of signs.
    """
    if PLAIN_ID.fullmatch(ident) is not None:
        return ident
    return "~" + sha256(ident.encode("utf-8", "surrogatepass")).hexdigest()


def key_of(item: Mapping[str, Any]) -> str:
    """The key of this item; "" for one that has no id and cannot be found by it."""
    ident = item.get("id")
    return item_key(ident) if isinstance(ident, str) else ""


_RESPONSE: Final = "resp_"
_OF_RESPONSE: Final = re.compile(r"[a-z]+_([0-9a-f]{48})(?:_[0-9]+)?")


def item_ids(response: str) -> Callable[[str], str]:
    """Makes ids, each from a prefix, for the items that came with a response and have none: they
    tell where they are, so that it need not be written down.
    """
    number = count()
    common = response.removeprefix(_RESPONSE)

    def new_id(prefix: str) -> str:
        place = next(number)
        return f"{prefix}{common}_{place}" if place else f"{prefix}{common}"

    return new_id


def origin(ident: str) -> str | None:
    """The response that an item with this id came with, if ``item_ids`` made it."""
    found = _OF_RESPONSE.fullmatch(ident)
    return None if found is None else _RESPONSE + found[1]


ENCRYPTED: Final = "reasoning.encrypted_content"
"""The ``include`` that shows encrypted reasoning to the client."""


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
