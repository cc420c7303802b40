"""Events that are like one before them but for their text.

Nearly all of a stream brings text, piece by piece. Between two such events differ the text, the
number of the event, and at OpenAI some padding; what stands around these are the same bytes. They
are learned from one event that was decoded. Whatever has them again is not decoded, nor encoded:
its text is found by its place, and passed on in the bytes it came in.

Nothing is taken on trust. What is learned is proved: with another text, another number and another
padding put into it, an event must decode to the same but for these. What is recognised has the same
bytes outside, and inside of them nothing but a number that was expected and one JSON string.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import orjson

from router.response.frame import EncodedFrame, Frame, data_of

__all__ = ["MOST_USELESS", "FindText", "PassedText", "TextTemplate"]

MOST_USELESS: Final = 32
"""So many events of a stream may be learned without another one like them. Then it is one whose
events are not alike.
"""

FindText = Callable[[dict[str, Any]], tuple[dict[str, Any], str] | None]
"""Finds the text of an event: the object in it that has the text, and the field. None: it has none,
or more than that.
"""

_MOST: Final = 4096
"""Bytes of an event beyond which nothing is learned of it."""

_NUMBER: Final = "sequence_number"
_NUMBER_MEMBER: Final = re.compile(rb'"sequence_number"\s*:\s*([0-9]+)(?=\s*[,}])')
_PADDING: Final = b',"obfuscation":"'
_PADDED: Final = re.compile(rb',"obfuscation":"([0-9A-Za-z]+)"\}\n\n\Z')
_TRIAL: Final[dict[str, Any]] = {"text": "q7", "number": 987654321, "padding": "Zz9"}


class TextTemplate:
    """What stands around the text of an event, as ``SSEDecoder.blocks`` gives it.

    ``number`` is that of the event that it was learned from, None without one; ``number_first``
    whether it comes before the text. After ``text`` has found one, ``raw`` is the same as it is
    written in the event, and ``padding`` what follows.
    """

    __slots__ = (
        "_end",
        "_start",
        "number",
        "number_first",
        "padded",
        "padding",
        "raw",
    )

    def __init__(
        self, start: bytes, end: bytes, number: int | None, *, first: bool, padded: bool
    ) -> None:
        self._start = start
        self._end = end
        self.padded = padded
        self.number_first = first if number is not None else None
        self.number = number
        self.raw = b""
        self.padding = b""

    @classmethod
    def of(cls, block: bytes, find: FindText) -> TextTemplate | None:
        """What can be learned of this event; None where that is nothing."""
        if len(block) > _MOST:
            return None
        event = orjson.loads(data_of(block))
        found = find(event)
        if found is None:
            return None
        texts = list(_member(found[1]).finditer(block))
        if len(texts) != 1:
            return None
        start, end = block[: texts[0].start(1) + 1], block[texts[0].end(1) - 1 :]
        padded = _PADDED.search(end)
        if padded is not None:
            end = end[: padded.start()]
        number, first = event.get(_NUMBER), False
        if number is not None:
            numbers = list(_NUMBER_MEMBER.finditer(block))
            if len(numbers) != 1 or type(number) is not int:
                return None
            first = numbers[0].end() < len(start)
            if first:
                start = _with_hole(start, *numbers[0].span(1))
            else:
                before = texts[0].end(1) - 1
                end = _with_hole(end, numbers[0].start(1) - before, numbers[0].end(1) - before)
        learned = cls(start, end, number, first=first, padded=padded is not None)
        return learned if learned._is_proved(event, *found) else None

    def _is_proved(self, event: dict[str, Any], holder: dict[str, Any], field: str) -> bool:
        """Whether the event, with other values in the holes, decodes to the same with those."""
        holder[field] = _TRIAL["text"]
        if self.number is not None:
            event[_NUMBER] = _TRIAL["number"]
        padding = b""
        if self.padded:
            event["obfuscation"] = _TRIAL["padding"]
            padding = b'%b%b"}\n\n' % (_PADDING, _TRIAL["padding"].encode())
        text = orjson.dumps(_TRIAL["text"])
        block = _filled(self.format(), self.number_first, _TRIAL["number"], text, padding)
        try:
            return bool(orjson.loads(data_of(block)) == event)
        except orjson.JSONDecodeError:
            return False

    def text(self, block: bytes, number: int = 0) -> str | None:
        """The text of an event that is like this one and has this number, if it has one; None for
        another event.
        """
        start, end, first = self._start, self._end, self.number_first
        if first:
            start = start % number
        elif first is not None:
            end = end % number
        if self.padded:
            padding = block[max(block.rfind(_PADDING), 0) :]
            if not (padding.endswith(b'"}\n\n') and padding[len(_PADDING) : -4].isalnum()):
                return None
            self.padding = padding
            block = block[: -len(padding)]
        if not (block.startswith(start) and block.endswith(end)):
            return None
        # With its quotes, so that nothing else can stand there.
        raw = block[len(start) - 1 : len(block) - len(end) + 1]
        try:
            text: str = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return None
        self.raw = raw
        return text

    def format(self) -> bytes:
        """What ``_filled`` makes an event like this one of."""
        start, end, first = self._start[:-1], self._end[1:], self.number_first
        start = start if first else start.replace(b"%", b"%%")
        end = end if first is False else end.replace(b"%", b"%%")
        return b"%b%%b%b%%b" % (start, end)


class PassedText:
    """Events that are passed on, when the first one of them has been. A number of the router's own
    takes the place of the endpoint's. ``text`` is that of the last one, ``raw`` the same in JSON,
    empty where there was none.
    """

    __slots__ = ("_encoded", "_first", "_mine", "_offset", "_theirs", "_type", "raw", "text")

    def __init__(
        self, type: str, theirs: TextTemplate, mine: TextTemplate | None, *, encoded: bool
    ) -> None:
        self._type = type
        self._theirs = theirs
        self._mine = None if mine is None else mine.format()  # None: they pass as they come
        self._first = None if mine is None else mine.number_first
        self._encoded = encoded
        self._offset = 0 if mine is None else (theirs.number or 0) - (mine.number or 0)
        self.text = ""
        self.raw = b""

    @classmethod
    def of(cls, block: bytes, passed: Frame, find: FindText, *, encoded: bool) -> PassedText | None:
        """What can be learned of an event and of what was passed on of it. ``encoded``: one that
        is changed is encoded anew, so that its text is written in the shortest way.
        """
        theirs = TextTemplate.of(block, find)
        if theirs is None:
            return None
        wire = passed.encode()
        if wire == block:
            return cls(passed.type, theirs, None, encoded=encoded)
        mine = TextTemplate.of(wire, find)
        if mine is None or mine.padded != theirs.padded:
            return None
        said = theirs.text(block, theirs.number or 0), mine.text(wire, mine.number or 0)
        return cls(passed.type, theirs, mine, encoded=encoded) if said[0] == said[1] else None

    def frame(self, block: bytes, number: int = 0) -> Frame | None:
        """What is passed on of another one, numbered so where it has a number; None for an event
        that is not like the first.
        """
        theirs = self._theirs
        text = theirs.text(block, number + self._offset)
        if text is None:
            return None
        self.text = text
        self.raw = raw = theirs.raw
        if self._mine is not None:
            if self._encoded and b"\\" in raw:
                raw = orjson.dumps(text)
            # ``_filled``, without a call for every event
            if self._first is None:
                block = self._mine % (raw, theirs.padding)
            elif self._first:
                block = self._mine % (number, raw, theirs.padding)
            else:
                block = self._mine % (raw, number, theirs.padding)
        return EncodedFrame(self._type, block)


@cache
def _member(field: str) -> re.Pattern[bytes]:
    return re.compile(rb'"%b"\s*:\s*("[^"\\]*+(?:\\.[^"\\]*+)*+")' % re.escape(field.encode()))


def _filled(
    form: bytes, number_first: bool | None, number: int, raw: bytes, padding: bytes
) -> bytes:
    """An event of this form, with a number (None: without), a text as JSON, and what follows."""
    if number_first is None:
        return form % (raw, padding)
    return form % ((number, raw, padding) if number_first else (raw, number, padding))


def _with_hole(literal: bytes, start: int, end: int) -> bytes:
    before, after = literal[:start].replace(b"%", b"%%"), literal[end:].replace(b"%", b"%%")
    return b"%b%%d%b" % (before, after)
