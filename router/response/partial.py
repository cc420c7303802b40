"""The output of a stream of Responses events, as far as it went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

__all__ = ["DELTAS", "TEXT_EVENTS", "PartialOutput"]

DELTAS: Final[Mapping[str, str]] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}
"""The events that bring pieces of what an item is about, and the field that they add up to."""

TEXT_EVENTS: Final = frozenset(
    {*DELTAS, "response.reasoning_summary_text.delta", "response.reasoning_text.delta"}
)
"""Most of a stream: events that bring a piece of text, in ``delta``."""

_NEVER_INCOMPLETE: Final = frozenset({"web_search_call", "image_generation_call"})


class PartialOutput:
    """Follows the events of one response. ``items`` are those that are done, in order.

    ``said`` is the text of the item, or part, that is open: as JSON without its quotes, which takes
    the least memory. Pieces that come in this form may be added to it.
    """

    __slots__ = ("_field", "_item", "_parts", "items", "said")

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self._item: dict[str, Any] | None = None
        self._parts: list[dict[str, Any]] = []
        self.said = bytearray()
        self._field = ""

    def delta(self, field: str, event: Mapping[str, Any]) -> None:
        """An event of ``DELTAS``."""
        piece = event.get("delta")
        if isinstance(piece, str):
            self._field = field
            self.said += orjson.dumps(piece)[1:-1]

    def follow(self, kind: str, event: Mapping[str, Any]) -> None:
        """Any other event."""
        if kind == "response.output_item.added":
            item = event.get("item")
            self._item = item if isinstance(item, dict) else None
            self._parts, self.said = [], bytearray()
        elif kind == "response.content_part.done":
            part = event.get("part")
            if isinstance(part, dict):
                self._parts.append(part)
            self.said = bytearray()
        elif kind == "response.output_item.done":
            item = event.get("item")
            if isinstance(item, dict):
                self.items.append(item)
            self._item = None

    def so_far(self) -> list[dict[str, Any]]:
        """The items so far, the open one marked as broken off."""
        if self._item is None:
            return list(self.items)
        item = dict(self._item)
        kind = item.get("type")
        if "status" in item:
            item["status"] = "failed" if kind in _NEVER_INCOMPLETE else "incomplete"
        text: str = orjson.loads(b'"%b"' % bytes(self.said))
        if kind == "message":
            item["content"] = [*self._parts, *self._open_part(text)]
        elif text and self._field in item:
            item[self._field] = text
        return [*self.items, item]

    def _open_part(self, text: str) -> list[dict[str, Any]]:
        if not text:
            return []
        if self._field == "refusal":
            return [{"type": "refusal", "refusal": text}]
        return [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
