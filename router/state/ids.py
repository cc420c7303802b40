"""Ids as keys: what a client writes as an id may be anything, and never reaches SQL as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

__all__ = ["is_id", "item_key", "key_of", "keys_of"]

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
    return [key for item in items if isinstance(item, dict) and (key := key_of(item))]
