"""Output items as they are written: what each kind opens with, streams, and closes with.

The order of events inside an item is the wire contract's (section 6). A writer appends frames to
the list it was given; ``close`` returns the finished item, equal to the one in
``response.output_item.done``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

import orjson

from router.translate.draft import Draft
from router.wire.frame import Frame

__all__ = ["CallItem", "CustomCallItem", "ItemWriter", "ReasoningItem", "RefusalItem", "TextItem"]

Item = dict[str, Any]

_LONGEST_ESCAPE: Final = len("\\ud83d\\ude00")


class ItemWriter:
    """One open output item. ``index`` is its place in the final ``output``."""

    id_prefix: ClassVar[str]
    delta_type: ClassVar[str]
    delta_fields: ClassVar[bytes] = b""
    delta_tail: ClassVar[bytes] = b"}"

    __slots__ = ("_delta_end", "_delta_start", "_out", "draft", "id", "index", "pieces")

    def __init__(self, draft: Draft, index: int, out: list[Frame]) -> None:
        self.draft = draft
        self.id = draft.new_id(self.id_prefix)
        self.index = index
        self.pieces: list[str] = []
        self._out = out
        self._delta_start = b'{"type":"%b","sequence_number":' % self.delta_type.encode()
        self._delta_end = b',"item_id":"%b","output_index":%d%b,"delta":' % (
            self.id.encode(),
            index,
            self.delta_fields,
        )

    def open(self) -> None:
        """Announce the item, and its first part where it has one."""
        self._emit("response.output_item.added", {"output_index": self.index, "item": self.new()})

    def delta(self, text: str) -> None:
        """Stream a piece. The frame is put together from prepared bytes: this is the hot path."""
        draft = self.draft
        sequence = draft.sequence
        draft.sequence = sequence + 1
        self.pieces.append(text)
        data = b"%b%d%b%b%b" % (
            self._delta_start,
            sequence,
            self._delta_end,
            orjson.dumps(text),
            self.delta_tail,
        )
        self._out.append(Frame(self.delta_type, data))

    def close(self, status: str) -> Item:
        """Write the closing events; ``status`` is ``completed`` or ``incomplete``."""
        item = self.finished(status)
        self.write_end(item)
        self._emit("response.output_item.done", {"output_index": self.index, "item": item})
        return item

    def new(self) -> Item:
        """The item as it is announced: empty, in progress."""
        raise NotImplementedError

    def finished(self, status: str) -> Item:
        """The item with what was streamed so far."""
        raise NotImplementedError

    def write_end(self, item: Item) -> None:
        """The events between the last delta and ``response.output_item.done``."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """Everything streamed so far."""
        return "".join(self.pieces)

    def _emit(self, kind: str, fields: dict[str, Any]) -> None:
        self._out.append(self.draft.event(kind, fields))

    def _inside(self, kind: str, **fields: Any) -> None:
        self._emit(kind, {"item_id": self.id, "output_index": self.index, **fields})


class _MessageItem(ItemWriter):
    """An assistant message with one content part."""

    id_prefix = "msg_"
    delta_fields = b',"content_index":0'

    __slots__ = ()

    def open(self) -> None:
        super().open()
        self._inside("response.content_part.added", content_index=0, part=self.part(""))

    def new(self) -> Item:
        return self._message("in_progress", [])

    def finished(self, status: str) -> Item:
        return self._message(status, [self.part(self.text)])

    def write_end(self, item: Item) -> None:
        part = item["content"][0]
        self.write_part_end(part)
        self._inside("response.content_part.done", content_index=0, part=part)

    def part(self, text: str) -> Item:
        """The content part with this text."""
        raise NotImplementedError

    def write_part_end(self, part: Item) -> None:
        """The event that closes the part's text."""
        raise NotImplementedError

    def _message(self, status: str, content: list[Item]) -> Item:
        return {
            "id": self.id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }


class TextItem(_MessageItem):
    """A message of output text, with the log probabilities where they were asked for."""

    delta_type = "response.output_text.delta"
    delta_tail = b',"logprobs":[]}'

    __slots__ = ("logprobs",)

    def __init__(self, draft: Draft, index: int, out: list[Frame]) -> None:
        super().__init__(draft, index, out)
        self.logprobs: list[Item] = []

    def delta_with_logprobs(self, text: str, logprobs: list[Item]) -> None:
        """Stream a piece with its log probabilities (``token``, ``logprob``, ``top_logprobs``)."""
        self.pieces.append(text)
        self.logprobs.extend(logprobs)
        self._inside(self.delta_type, content_index=0, delta=text, logprobs=logprobs)

    def part(self, text: str) -> Item:
        logprobs = list(self.logprobs)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def write_part_end(self, part: Item) -> None:
        self._inside(
            "response.output_text.done",
            content_index=0,
            text=part["text"],
            logprobs=part["logprobs"],
        )


class RefusalItem(_MessageItem):
    """A message that refuses."""

    delta_type = "response.refusal.delta"

    __slots__ = ()

    def part(self, text: str) -> Item:
        return {"type": "refusal", "refusal": text}

    def write_part_end(self, part: Item) -> None:
        self._inside("response.refusal.done", content_index=0, refusal=part["refusal"])


class ReasoningItem(ItemWriter):
    """Reasoning, streamed as one summary part: the form that every client of the API reads."""

    id_prefix = "rs_"
    delta_type = "response.reasoning_summary_text.delta"
    delta_fields = b',"summary_index":0'

    __slots__ = ()

    def open(self) -> None:
        super().open()
        part = {"type": "summary_text", "text": ""}
        self._inside("response.reasoning_summary_part.added", summary_index=0, part=part)

    def new(self) -> Item:
        return {"id": self.id, "type": "reasoning", "summary": []}

    def finished(self, status: str) -> Item:
        summary = [{"type": "summary_text", "text": self.text}]
        return {"id": self.id, "type": "reasoning", "summary": summary}

    def write_end(self, item: Item) -> None:
        part = item["summary"][0]
        self._inside("response.reasoning_summary_text.done", summary_index=0, text=part["text"])
        self._inside("response.reasoning_summary_part.done", summary_index=0, part=part)


class CallItem(ItemWriter):
    """A function call; its arguments are streamed as the JSON text they are."""

    id_prefix = "fc_"
    delta_type = "response.function_call_arguments.delta"

    __slots__ = ("call_id", "name")

    def __init__(self, draft: Draft, index: int, out: list[Frame], call_id: str, name: str) -> None:
        super().__init__(draft, index, out)
        self.call_id = call_id
        self.name = name

    @property
    def received(self) -> list[str]:
        """The fragments of the arguments so far."""
        return self.pieces

    def new(self) -> Item:
        return self._call("in_progress", "")

    def finished(self, status: str) -> Item:
        return self._call(status, self.text)

    def close(self, status: str) -> Item:
        if not any(piece.strip() for piece in self.pieces):
            # No arguments at all mean an empty object; a done event needs a delta before it.
            self.delta("{}")
        return super().close(status)

    def write_end(self, item: Item) -> None:
        self._inside(
            "response.function_call_arguments.done",
            name=self.name,
            arguments=item["arguments"],
        )

    def _call(self, status: str, arguments: str) -> Item:
        return {
            "id": self.id,
            "type": "function_call",
            "status": status,
            "arguments": arguments,
            "call_id": self.call_id,
            "name": self.name,
        }


class CustomCallItem(CallItem):
    """A custom tool's call. Upstream it is a function with one string, ``input``, so that the
    input is known only once the arguments are complete: it is written as one delta at the end.
    """

    id_prefix = "ctc_"
    delta_type = "response.custom_tool_call_input.delta"

    __slots__ = ("_arguments",)

    def __init__(self, draft: Draft, index: int, out: list[Frame], call_id: str, name: str) -> None:
        super().__init__(draft, index, out, call_id, name)
        self._arguments: list[str] = []

    @property
    def received(self) -> list[str]:
        return self._arguments

    def delta(self, text: str) -> None:
        self._arguments.append(text)

    def close(self, status: str) -> Item:
        ItemWriter.delta(self, self._input())
        return ItemWriter.close(self, status)

    def finished(self, status: str) -> Item:
        return self._call(status, self.text or self._input())

    def write_end(self, item: Item) -> None:
        self._inside("response.custom_tool_call_input.done", input=item["input"])

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
