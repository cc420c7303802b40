"""The whole completion that the chunks of a stream amount to, a chat's or a legacy one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from router.dialects.chat.decode_stream import CallKeys, text_or_none
from router.response.decoder import arguments_text

__all__ = ["JoinedChunks"]

JSON = dict[str, Any]

_DONE: Final = b"[DONE]"
_OF_THE_FIRST: Final = ("id", "created", "model")
"""What some servers send anew with every chunk: the answer has that of the first."""

_OF_STREAMS: Final = ("choices", "obfuscation")
_WHOLE: Final = {"chat.completion.chunk": "chat.completion"}
_TEXTS: Final = frozenset({"content", "reasoning_content", "reasoning", "refusal"})
_CALLS: Final = {"function": "arguments", "custom": "input"}
"""What a call has of its own, and the text in it."""


class JoinedChunks:
    """Joins chunks as they come. ``add`` raises ValueError, TypeError or AttributeError for what is
    no chunk.

    Texts and lists (log probabilities) go on from chunk to chunk; of other fields the last value
    counts, but a null. ``by_index`` is whether the index of every fragment of a tool call was
    enough to tell which call it belongs to.
    """

    __slots__ = ("_choices", "_head")

    def __init__(self) -> None:
        self._head: JSON = {}
        self._choices: dict[int, _JoinedChoice] = {}

    @classmethod
    def of(cls, events: Iterable[bytes]) -> JoinedChunks:
        """Those of a stream, its end marker left out; raises like ``add``, and ValueError for an
        error among them.
        """
        joined = cls()
        for data in events:
            if data == _DONE:
                continue
            chunk = orjson.loads(data)
            if chunk.get("error") or chunk.get("object") == "error":
                raise ValueError("an error in a stream")
            joined.add(chunk)
        return joined

    @property
    def by_index(self) -> bool:
        """See above."""
        return all(choice.by_index for choice in self._choices.values())

    def add(self, chunk: JSON) -> None:
        """The next chunk, decoded; parts of it are kept."""
        head = self._head
        for name, value in chunk.items():
            if name in _OF_STREAMS or (name in _OF_THE_FIRST and head.get(name)):
                continue
            if value is not None or name not in head:
                head[name] = value
        for part in chunk.get("choices") or ():
            index = part.get("index")
            index = index if type(index) is int else 0
            choice = self._choices.get(index)
            if choice is None:
                choice = self._choices[index] = _JoinedChoice()
            choice.add(part)

    def whole(self) -> JSON:
        """The completion; it shares values with the chunks."""
        whole = dict(self._head)
        if whole.get("object") in _WHOLE:
            whole["object"] = _WHOLE[whole["object"]]
        if "usage" in whole and not whole["usage"]:
            del whole["usage"]
        choices = self._choices
        return {**whole, "choices": [choices[i].whole(i) for i in sorted(choices)]}


class _JoinedChoice:
    """One of the answers. ``texts`` are those of its message, or of itself."""

    __slots__ = ("_call_by_index", "by_index", "calls", "fields", "keys", "message", "texts")

    def __init__(self) -> None:
        self.fields: JSON = {}
        self.message: JSON | None = None
        self.texts: dict[str, list[str]] = {}
        self.calls: dict[int, _JoinedCall] = {}
        self.keys = CallKeys()
        self.by_index = True
        self._call_by_index: dict[int, int] = {}

    def add(self, part: JSON) -> None:
        """What a chunk has of it."""
        fields = dict(part)
        fields.pop("index", None)
        delta = fields.pop("delta", None) or fields.pop("message", None)
        if "text" in fields:
            self._text("text", fields.pop("text"))
        elif "delta" in part or "message" in part:
            self._say(delta or {})
        _merge(self.fields, fields)

    def _say(self, delta: JSON) -> None:
        if self.message is None:
            self.message = {"role": "assistant"}
        others = {}
        for name, value in delta.items():
            if name in _TEXTS and not isinstance(value, list):
                self._text(name, value)
            elif name == "tool_calls":
                for fragment in value or ():
                    self._call(fragment)
            else:
                others[name] = value
        _merge(self.message, others)

    def _text(self, name: str, value: str | None) -> None:
        pieces = self.texts.setdefault(name, [])
        if value:
            pieces.append(value + "")  # a TypeError for what is no text

    def _call(self, fragment: JSON) -> None:
        own = fragment.get("function") or fragment.get("custom") or {}
        text = arguments_text(own.get("arguments", own.get("input")))
        index, call_id, name = fragment.get("index"), fragment.get("id"), own.get("name")
        key = self.keys.key(index, text_or_none(call_id), text_or_none(name), text, self._has_whole)
        if type(index) is not int or self._call_by_index.setdefault(index, key) != key:
            self.by_index = False
        call = self.calls.get(key)
        if call is None:
            call = self.calls[key] = _JoinedCall()
        call.add(fragment, text)

    def _has_whole(self, key: int) -> bool:
        call = self.calls.get(key)
        return call is not None and call.is_whole

    def whole(self, index: int) -> JSON:
        """All of it."""
        texts: JSON = {name: "".join(pieces) for name, pieces in self.texts.items()}
        if self.message is None:
            return {"index": index, **texts, **self.fields}
        for name, text in texts.items():
            # A null is what servers send before the first piece, and instead of all of them.
            texts[name] = text or None
        parts = self.message.get("content")
        if isinstance(parts, list):
            text = texts.get("content")
            texts["content"] = [*parts, {"type": "text", "text": text}] if text else parts
        elif "content" in texts and not (self.calls or texts.get("refusal")):
            texts["content"] = texts["content"] or ""
        message = {**self.message, **texts}
        if self.calls:
            message["tool_calls"] = [call.whole() for call in self.calls.values()]
        return {"index": index, "message": message, **self.fields}


class _JoinedCall:
    """A tool call: its fields, and the pieces of its text."""

    __slots__ = ("_fields", "_kind", "_pieces")

    def __init__(self) -> None:
        self._fields: JSON = {}
        self._kind = "function"
        self._pieces: list[str] = []

    @property
    def is_whole(self) -> bool:
        """Whether its text is JSON in full."""
        try:
            orjson.loads("".join(self._pieces))
        except orjson.JSONDecodeError:
            return False
        return True

    def add(self, fragment: JSON, text: str) -> None:
        """A fragment, with so much of the text."""
        for name, value in fragment.items():
            if name in _CALLS:
                if value:
                    self._kind = name
                    own = {field: v for field, v in value.items() if field != _CALLS[name]}
                    _fill(self._fields.setdefault(name, {}), own)
            elif name != "index":
                _fill(self._fields, {name: value})
        self._pieces.append(text)

    def whole(self) -> JSON:
        """All of it."""
        own = {**self._fields.get(self._kind, {}), _CALLS[self._kind]: "".join(self._pieces)}
        return {"type": self._kind, **self._fields, self._kind: own}


def _fill(known: JSON, more: JSON) -> None:
    """Add what is not known yet: some servers repeat the id and name, or invent others."""
    for name, value in more.items():
        if not known.get(name):
            known[name] = value


def _merge(known: JSON, more: JSON) -> None:
    """Go on with ``more``: lists are continued, objects merged, other values replaced, but not by
    a null or an empty text.
    """
    for name, value in more.items():
        before = known.get(name)
        if isinstance(before, list) and isinstance(value, list):
            before.extend(value)
        elif isinstance(before, dict) and isinstance(value, dict):
            _merge(before, value)
        elif name not in known or (value is not None and value != ""):
            known[name] = value
