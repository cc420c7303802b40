"""Where in the output the events of a stream belong, for endpoints that do not say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["BEGINNINGS", "Places"]

_ITEM: Final = "response.output_item.added"
_CONTENT: Final = "response.content_part.added"
_SUMMARY: Final = "response.reasoning_summary_part.added"
BEGINNINGS: Final = frozenset({_ITEM, _CONTENT, _SUMMARY})
"""The events that begin an item or a part; on these an endpoint shows whether it sends indexes."""

_IN_CONTENT: Final = (
    "response.content_part.",
    "response.output_text.",
    "response.refusal.",
    "response.reasoning_text.",
)
_IN_SUMMARY: Final = ("response.reasoning_summary_",)
_WITH_LOGPROBS: Final = ("response.output_text.delta", "response.output_text.done")


class Places:
    """Fills in ``output_index``, ``content_index`` and ``summary_index`` by the order of events.

    llama.cpp leaves them out. An event belongs to the item that its ``item_id`` names (the id or
    the ``call_id``), else to the newest one; an item is never begun twice. ``missing`` is True from
    the first beginning without an index on; until then only the events of ``BEGINNINGS`` need to
    be given.
    """

    __slots__ = ("_by_id", "_count", "_newest", "_parts", "missing")

    def __init__(self) -> None:
        self.missing = False
        self._count = 0
        self._newest = 0
        self._by_id: dict[str, int] = {}
        self._parts: dict[tuple[int, str], int] = {}

    def fill(self, kind: str, event: dict[str, Any]) -> bool:
        """Add to an event of the output what it lacks; True when that was something."""
        had = len(event)
        item = event.get("item")
        place = event.get("output_index")
        if "output_index" not in event:
            self.missing = True
            place = self._count if kind == _ITEM else self._place_of(event, item)
            event["output_index"] = place
        elif type(place) is not int:
            return False  # not left out but wrong: passed on as it is
        if kind == _ITEM:
            self._newest = place
            self._count = max(self._count, place + 1)
            self._remember(place, item)
        elif kind.startswith(_IN_CONTENT):
            self._index(kind == _CONTENT, "content_index", place, event)
        elif kind.startswith(_IN_SUMMARY):
            self._index(kind == _SUMMARY, "summary_index", place, event)
        completed = self.missing and _complete(kind, event)
        return completed or len(event) != had

    def _remember(self, place: int, item: Any) -> None:
        if isinstance(item, dict):
            for name in ("id", "call_id"):
                if isinstance(item.get(name), str):
                    self._by_id[item[name]] = place

    def _place_of(self, event: Mapping[str, Any], item: Any) -> int:
        names = [event.get("item_id")]
        if isinstance(item, dict):
            names += [item.get("id"), item.get("call_id")]
        for name in names:
            if isinstance(name, str) and name in self._by_id:
                return self._by_id[name]
        return self._newest

    def _index(self, begins: bool, name: str, place: int, event: dict[str, Any]) -> None:
        index: Any = event.get(name)
        if name in event and type(index) is not int:
            return
        if name not in event:
            self.missing = True
            latest = self._parts.get((place, name))
            index = 0 if latest is None else latest + int(begins)
            event[name] = index
        if begins:
            self._parts[place, name] = index


def _complete(kind: str, event: dict[str, Any]) -> bool:
    """The lists that clients expect in text, where there are none."""
    if kind in _WITH_LOGPROBS and "logprobs" not in event:
        event["logprobs"] = []
        return True
    part = event.get("part")
    if isinstance(part, dict) and part.get("type") == "output_text":
        had = len(part)
        part.setdefault("annotations", [])
        part.setdefault("logprobs", [])
        return len(part) != had
    return False
