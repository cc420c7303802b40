"""Output items as they are written: what each kind opens with, streams, and closes with.

A message or a piece of reasoning has its texts in parts, of which there may be several; a tool
call has just one, without a part around it. The order of events is the wire contract's (section
6). A writer appends frames to the list it was given; ``close`` returns the finished item, equal to
the one in ``response.output_item.done``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

import orjson

from router.response.builder import ResponseBuilder
from router.response.frame import Frame

__all__ = [
    "ArgumentsText", "CallItem", "CustomCallItem", "InputText", "ItemWriter", "OutputText",
    "PartWriter", "RawReasoningText", "ReasoningItem", "RefusalItem", "RefusalText", "SummaryText",
    "TextItem", "TextWriter",
]  # fmt: skip

Item = dict[str, Any]

_LONGEST_ESCAPE: Final = len("\\ud83d\\ude00")


class TextWriter:
    """One text of the item ``id`` (a new one is made without it), which is at ``index`` of the
    output. ``place`` is that of the part within the item.
    """

    stem: ClassVar[str]
    """What the types of its events begin with."""
    id_prefix: ClassVar[str] = "item_"
    place_name: ClassVar[str] = ""
    delta_tail: ClassVar[bytes] = b"}"

    __slots__ = (
        "_delta_end", "_delta_start", "_delta_type", "_out", "builder", "id", "index", "pieces",
        "place",
    )  # fmt: skip

    def __init__(
        self, builder: ResponseBuilder, index: int, out: list[Frame], id: str = "", place: int = 0
    ) -> None:
        self.builder = builder
        self.id = id = id or builder.new_id(self.id_prefix)
        self.index = index
        self.place = place
        self.pieces: list[str] = []
        self._out = out
        self._delta_type = f"{self.stem}.delta"
        self._delta_start = b'{"type":"%b","sequence_number":' % self._delta_type.encode()
        self._delta_end = b',"item_id":"%b","output_index":%d%b,"delta":' % (
            id.encode(),
            index,
            b',"%b":%d' % (self.place_name.encode(), place) if self.place_name else b"",
        )

    def delta(self, text: str) -> None:
        """Stream a piece. The frame is put together from prepared bytes: this is the hot path."""
        builder = self.builder
        sequence = builder.sequence
        builder.sequence = sequence + 1
        self.pieces.append(text)
        data = b"%b%d%b%b%b" % (
            self._delta_start,
            sequence,
            self._delta_end,
            orjson.dumps(text),
            self.delta_tail,
        )
        self._out.append(Frame(self._delta_type, data))

    def _inside(self, kind: str, **fields: Any) -> None:
        """An event between the item's first and its last."""
        place = {self.place_name: self.place} if self.place_name else {}
        at = {"item_id": self.id, "output_index": self.index, **place}
        self._out.append(self.builder.event(kind, {**at, **fields}))


class PartWriter(TextWriter):
    """A text in a part of its own."""

    part_stem: ClassVar[str] = "response.content_part"
    place_name = "content_index"
    field: ClassVar[str] = "text"
    with_logprobs: ClassVar[bool] = False

    __slots__ = ()

    def open_part(self, part: Item) -> None:
        """Announce the part; its text is empty."""
        self._inside(f"{self.part_stem}.added", part=part)

    def close_part(self, part: Item) -> None:
        """The events after the last delta; ``part`` is the complete one."""
        done = {self.field: part[self.field]}
        if self.with_logprobs:
            done["logprobs"] = part["logprobs"]
        self._inside(f"{self.stem}.done", **done)
        self._inside(f"{self.part_stem}.done", part=part)


class OutputText(PartWriter):
    """Output text, with the log probabilities where they were asked for."""

    stem = "response.output_text"
    with_logprobs = True
    delta_tail = b',"logprobs":[]}'

    __slots__ = ()

    def delta_with_logprobs(self, text: str, logprobs: list[dict[str, Any]]) -> None:
        """Stream a piece with its log probabilities (``token``, ``logprob``, ``top_logprobs``)."""
        self.pieces.append(text)
        self._inside(self._delta_type, delta=text, logprobs=logprobs)

    def annotate(self, annotations: list[dict[str, Any]]) -> None:
        """Announce the annotations of a text whose last delta is out."""
        kind = f"{self.stem}.annotation.added"
        for place, annotation in enumerate(annotations):
            self._inside(kind, annotation_index=place, annotation=annotation)


class RefusalText(PartWriter):
    """The text of a refusal."""

    stem, field = "response.refusal", "refusal"

    __slots__ = ()


class SummaryText(PartWriter):
    """A part of the summary of some reasoning."""

    stem = "response.reasoning_summary_text"
    part_stem = "response.reasoning_summary_part"
    place_name = "summary_index"

    __slots__ = ()


class RawReasoningText(PartWriter):
    """Reasoning as the model wrote it."""

    stem = "response.reasoning_text"

    __slots__ = ()


class ArgumentsText(TextWriter):
    """The arguments of a function call."""

    stem = "response.function_call_arguments"
    done_fields: ClassVar[tuple[str, ...]] = ("name", "arguments")

    __slots__ = ()

    def close_text(self, item: dict[str, Any]) -> None:
        """The event after the last delta; ``item`` is the complete one."""
        self._inside(f"{self.stem}.done", **{name: item[name] for name in self.done_fields})


class InputText(ArgumentsText):
    """The input of a custom tool's call."""

    stem = "response.custom_tool_call_input"
    done_fields = ("input",)

    __slots__ = ()


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

    def _tell(self, kind: str, item: Item) -> Item:
        """The item's first event (``added``), where it is in progress, or its last (``done``)."""
        at = {"output_index": self.index, "item": item}
        self._out.append(self.builder.event(f"response.output_item.{kind}", at))
        return item


class _MessageItem(ItemWriter, PartWriter):
    """An assistant message with one content part."""

    id_prefix = "msg_"

    __slots__ = ()

    def open(self) -> None:
        self._tell("added", self._message("in_progress", []))
        self.open_part(self.part(""))

    def finished(self, status: str) -> Item:
        return self._message(status, [self.part("".join(self.pieces))])

    def close(self, status: str) -> Item:
        part = self.part("".join(self.pieces))
        self.close_part(part)
        return self._tell("done", self._message(status, [part]))

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
        self._tell("added", {"id": self.id, "type": "reasoning", "summary": []})
        self.open_part({"type": "summary_text", "text": ""})

    def finished(self, status: str) -> Item:
        summary = [{"type": "summary_text", "text": "".join(self.pieces)}]
        return {"id": self.id, "type": "reasoning", "summary": summary}

    def close(self, status: str) -> Item:
        item = self.finished(status)
        self.close_part(item["summary"][0])
        return self._tell("done", item)


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
        self._tell("added", self._call("in_progress", ""))

    def finished(self, status: str) -> Item:
        return self._call(status, "".join(self.pieces))

    def close(self, status: str) -> Item:
        if not any(piece.strip() for piece in self.pieces):
            # No arguments at all mean an empty object; a done event needs a delta before it.
            self.delta("{}")
        return self._end(self.finished(status))

    def _end(self, item: Item) -> Item:
        self.close_text(item)
        return self._tell("done", item)

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
