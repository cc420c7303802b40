"""A native stream, as far as it went: how it is cut, and what its next events are likely to be."""

from __future__ import annotations

from functools import partial
from typing import Any

from router.dialects.responses.places import Places
from router.response.frame import Frame, SSEDecoder
from router.response.partial import DELTAS, PartialOutput
from router.response.text_template import MOST_USELESS, PassedText

__all__ = ["StreamedEvents"]


class StreamedEvents:
    """What is kept of a stream while it lasts.

    ``blocks`` cuts it, ``output`` is what it has said, ``places`` where that belongs. ``alike``
    recognises the events that are like the ``last`` one, by its type, which brought text; what they
    say belongs to ``output`` where it ``keeps`` that. It is learned of the second one in a row: the
    first is not held up by that.
    """

    __slots__ = ("_useless", "alike", "blocks", "keeps", "last", "output", "places")

    def __init__(self) -> None:
        self.blocks = SSEDecoder().blocks
        self.output = PartialOutput()
        self.places = Places()
        self.alike: PassedText | None = None
        self.keeps = False
        self.last = ""
        self._useless = 0

    def forget(self, alike: PassedText) -> None:
        """The next event is not like those that ``alike`` recognises."""
        if not alike.raw:
            self._useless += 1
        self.alike = None

    def learn(self, block: bytes, passed: Frame) -> None:
        """This is an event that may bring text, and what was passed on of it."""
        last, kind = self.last, passed.type
        self.last = kind
        if kind == last and self._useless < MOST_USELESS:
            self.alike = PassedText.of(block, passed, partial(_text_of, kind), encoded=True)
            self.keeps = kind in DELTAS


def _text_of(kind: str, event: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """Where the text of an event of this kind is, if it has nothing but a text."""
    plain = event.get("type") == kind and "item" not in event and "response" not in event
    return (event, "delta") if plain and type(event.get("delta")) is str else None
