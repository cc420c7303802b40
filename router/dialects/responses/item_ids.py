"""Ids for the items of endpoints that repeat theirs, or leave them out."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.responses.schema import ID_PREFIXES
from router.response.builder import IdFactory

__all__ = ["ItemIds", "is_plainly_unique"]

_ADDED: Final = "response.output_item.added"
_DONE: Final = "response.output_item.done"
_MIN_LENGTH: Final = 16
_MIN_DISTINCT: Final = 6
_OTHER_PREFIX: Final = "item_"


def is_plainly_unique(ident: str) -> bool:
    """Whether an id is one that no other answer has, by its look.

    Past its prefix it has at least 16 characters, 6 of them distinct. The shortest random ids that
    engines make are 64 bits in hexadecimal; counters, numbers below a million (Ollama) and fixed
    words are shorter, and a counter padded with zeros has few distinct characters.
    """
    unique = ident.partition("_")[2] or ident
    return len(unique) >= _MIN_LENGTH and len(set(unique)) >= _MIN_DISTINCT


@dataclass(slots=True)
class _KnownItem:
    """An item of this answer: what it is, the endpoint's id for it (None without one), ours."""

    kind: str
    theirs: str | None
    id: str


class ItemIds:
    """The ids of one answer's items.

    An id that is plainly unique stays, unless it is in ``taken`` (the ids in the request's history)
    or another item of this answer has it. Any other is replaced, wherever the answer names the
    item. What has no type is no item, and passes. ``active`` is True from the first replacement on;
    until then only the events that have an ``item`` need to be given.
    """

    __slots__ = ("_by_name", "_by_place", "_items", "_new_id", "_taken", "active")

    def __init__(self, new_id: IdFactory, taken: Container[str] = ()) -> None:
        self.active = False
        self._new_id = new_id
        self._taken = taken
        self._items: list[_KnownItem] = []
        self._by_place: dict[int, _KnownItem] = {}
        self._by_name: dict[str, _KnownItem] = {}

    def rename(self, kind: str, event: dict[str, Any]) -> bool:
        """Put the item's id into an event of the output; True when that changed it."""
        place = event.get("output_index")
        inner = event.get("item")
        if isinstance(inner, dict):
            if not isinstance(inner.get("type"), str):
                return False
            known = None if kind == _ADDED else self._named(place, inner.get("id"), inner)
            if known is None and kind in (_ADDED, _DONE):
                known = self._begin(inner)
                self._remember(place, known, inner)
            return known is not None and _put(inner, "id", known.id)
        known = self._named(place, event.get("item_id"), {})
        # Left out, it is filled in for an item that came without an id.
        return known is not None and _put(event, "item_id", known.id)

    def rename_output(self, output: list[dict[str, Any]]) -> None:
        """Put the ids into the output of a Response object, whose items may have been streamed.

        An item is the one that was begun in its place; a type that differs there has it looked for
        by the endpoint's id.
        """
        streamed = self._items.copy()
        for place, item in enumerate(output):
            if not isinstance(item.get("type"), str):
                continue
            known = streamed[place] if place < len(streamed) else None
            if known is None or known.kind != item.get("type"):
                known = _found(streamed, item)
            if known is None:
                known = self._begin(item)
            elif known.id == known.theirs:
                continue
            _put(item, "id", known.id)
        del self._items[len(streamed) :]  # a snapshot in mid-stream begins nothing

    def _begin(self, item: dict[str, Any]) -> _KnownItem:
        kind: str = item["type"]
        ident = item.get("id")
        theirs = ident if isinstance(ident, str) and ident else None
        if theirs is not None and self._may_stay(theirs):
            begun = _KnownItem(kind, theirs, theirs)
        else:
            begun = _KnownItem(kind, theirs, self._new_id(ID_PREFIXES.get(kind, _OTHER_PREFIX)))
            self.active = True
        self._items.append(begun)
        return begun

    def _may_stay(self, ident: str) -> bool:
        return (
            is_plainly_unique(ident)
            and ident not in self._taken
            and all(item.id != ident for item in self._items)
        )

    def _remember(self, place: Any, known: _KnownItem, item: dict[str, Any]) -> None:
        if type(place) is int:
            self._by_place[place] = known
        for name in (known.theirs, item.get("call_id")):
            if isinstance(name, str):
                self._by_name[name] = known

    def _named(self, place: Any, name: Any, item: dict[str, Any]) -> _KnownItem | None:
        """The item in this place of the output; without a place, of this id or ``call_id``."""
        if type(place) is int:
            return self._by_place.get(place)
        for word in (name, item.get("call_id")):
            if isinstance(word, str) and word in self._by_name:
                return self._by_name[word]
        return None


def _found(streamed: list[_KnownItem], item: dict[str, Any]) -> _KnownItem | None:
    for known in streamed:
        if known.theirs is not None and known.theirs == item.get("id"):
            return known
    return None


def _put(target: dict[str, Any], name: str, ident: str) -> bool:
    changed = target.get(name) != ident
    target[name] = ident
    return changed
