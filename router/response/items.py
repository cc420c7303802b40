"""Output items as they are written: what each kind opens with, streams, and closes with.

The order of events inside an item is the wire contract's (section 6). A writer appends frames to
the list it was given; ``close`` returns the finished item, equal to the one in
``response.output_item.done``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from router.response.builder import ResponseBuilder
from router.response.frame import Frame
from router.response.texts import (
    ArgumentsText,
    InputText,
    OutputText,
    PartWriter,
    RefusalText,
    SummaryText,
    TextWriter,
)

__all__ = ["CallItem", "CustomCallItem", "ItemWriter", "ReasoningItem", "RefusalItem", "TextItem"]

Item = dict[str, Any]

_LONGEST_ESCAPE: Final = len("\\ud83d\\ude00")


class ItemWriter(TextWriter):
    """One open output item with one text. ``index`` is its place in the final ``output``."""

    __slots__ = ()

    def open(self) -> None:
        """Announce the item, and its part where it has one."""
        raise NotImplementedError

    def close(self, status: str) -> Item:
        """Write the closing events; ``status`` is ``completed`` or ``incomplete``."""
        raise NotImplementedError

    def finished(self, status: str) -> Item:
        """The item with what was streamed so far."""
        raise NotImplementedError

    def _added(self, item: Item) -> None:
        """Announce the item, which is empty and in progress."""
        at = {"output_index": self.index, "item": item}
        self._out.append(self.builder.event("response.output_item.added", at))

    def _done(self, item: Item) -> Item:
        at = {"output_index": self.index, "item": item}
        self._out.append(self.builder.event("response.output_item.done", at))
        return item


class _MessageItem(ItemWriter, PartWriter):
    """An assistant message with one content part."""

    id_prefix = "msg_"

    __slots__ = ()

    def open(self) -> None:
        self._added(self._message("in_progress", []))
        self.open_part(self.part(""))

    def finished(self, status: str) -> Item:
        return self._message(status, [self.part("".join(self.pieces))])

    def close(self, status: str) -> Item:
        part = self.part("".join(self.pieces))
        self.close_part(part)
        return self._done(self._message(status, [part]))

    def part(self, text: str) -> Item:
        """The content part with this text."""
        raise NotImplementedError

    def _message(self, status: str, content: list[Item]) -> Item:
        return {
            "id": self.id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }


class TextItem(_MessageItem, OutputText):
    """A message of output text, with the log probabilities where they were asked for."""

    __slots__ = ("logprobs",)

    def __init__(self, builder: ResponseBuilder, index: int, out: list[Frame]) -> None:
        super().__init__(builder, index, out)
        self.logprobs: list[Item] = []

    def delta_with_logprobs(self, text: str, logprobs: list[Item]) -> None:
        self.logprobs.extend(logprobs)
        super().delta_with_logprobs(text, logprobs)

    def part(self, text: str) -> Item:
        logprobs = list(self.logprobs)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


class RefusalItem(_MessageItem, RefusalText):
    """A message that refuses."""

    __slots__ = ()

    def part(self, text: str) -> Item:
        return {"type": "refusal", "refusal": text}


class ReasoningItem(ItemWriter, SummaryText):
    """Reasoning, streamed as one summary part: the form that every client of the API reads."""

    id_prefix = "rs_"

    __slots__ = ()

    def open(self) -> None:
        self._added({"id": self.id, "type": "reasoning", "summary": []})
        self.open_part({"type": "summary_text", "text": ""})

    def finished(self, status: str) -> Item:
        summary = [{"type": "summary_text", "text": "".join(self.pieces)}]
        return {"id": self.id, "type": "reasoning", "summary": summary}

    def close(self, status: str) -> Item:
        item = self.finished(status)
        self.close_part(item["summary"][0])
        return self._done(item)


class CallItem(ItemWriter, ArgumentsText):
    """A function call; its arguments are streamed as the JSON text they are."""

    id_prefix = "fc_"

    __slots__ = ("call_id", "name")

    def __init__(
        self, builder: ResponseBuilder, index: int, out: list[Frame], call_id: str, name: str
    ) -> None:
        super().__init__(builder, index, out)
        self.call_id = call_id
        self.name = name

    @property
    def received(self) -> list[str]:
        """The fragments of the arguments so far."""
        return self.pieces

    def open(self) -> None:
        self._added(self._call("in_progress", ""))

    def finished(self, status: str) -> Item:
        return self._call(status, "".join(self.pieces))

    def close(self, status: str) -> Item:
        if not any(piece.strip() for piece in self.pieces):
            # No arguments at all mean an empty object; a done event needs a delta before it.
            self.delta("{}")
        return self._end(self.finished(status))

    def _end(self, item: Item) -> Item:
        self.close_text(item)
        return self._done(item)

    def _call(self, status: str, arguments: str) -> Item:
        return {
            "id": self.id,
            "type": "function_call",
            "status": status,
            "arguments": arguments,
            "call_id": self.call_id,
            "name": self.name,
        }


class CustomCallItem(CallItem, InputText):
    """A custom tool's call. Upstream it is a function with one string, ``input``, so that the
    input is known only once the arguments are complete: it is written as one delta at the end.
    """

    id_prefix = "ctc_"

    __slots__ = ("_arguments",)

    def __init__(
        self, builder: ResponseBuilder, index: int, out: list[Frame], call_id: str, name: str
    ) -> None:
        super().__init__(builder, index, out, call_id, name)
        self._arguments: list[str] = []

    @property
    def received(self) -> list[str]:
        return self._arguments

    def delta(self, text: str) -> None:
        self._arguments.append(text)

    def close(self, status: str) -> Item:
        ItemWriter.delta(self, self._input())
        return self._end(self.finished(status))

    def finished(self, status: str) -> Item:
        return self._call(status, "".join(self.pieces) or self._input())

    def _input(self) -> str:
        arguments = "".join(self._arguments)
        for text in _completions(arguments):
            value = _json(text)
            if isinstance(value, dict) and isinstance(value.get("input"), str):
                return str(value["input"])
        return arguments

    def _call(self, status: str, arguments: str) -> Item:
        return {
            "id": self.id,
            "type": "custom_tool_call",
            "status": status,
            "call_id": self.call_id,
            "name": self.name,
            "input": arguments,
        }


def _completions(text: str) -> Iterator[str]:
    """``text``, and what it may have been going to be: where a limit cut it off within a string,
    what there is of the string counts, less half an escape.
    """
    yield text
    yield text + "}"
    for cut in range(_LONGEST_ESCAPE):
        yield text[: len(text) - cut] + '"}'


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
