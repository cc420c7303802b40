"""Output items as they are written: what each kind opens with, streams, and closes with.

A message or a piece of reasoning has its texts in parts, of which there may be several; a tool
call (``router.response.call_items``) has just one, without a part around it. The order of events is
the wire contract's (section 6). A writer appends frames to the list it was given; ``close`` returns
the finished item, equal to the one in ``response.output_item.done``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import orjson

from router.response.builder import ResponseBuilder
from router.response.frame import EncodedFrame, Frame

__all__ = [
    "ArgumentsText", "InputText", "ItemWriter", "OutputText", "PartWriter", "RawReasoningText",
    "ReasoningItem", "RefusalItem", "RefusalText", "SilentReasoningItem", "SummaryText",
    "TextItem", "TextWriter",
]  # fmt: skip

Item = dict[str, Any]

_MANY: Final = 16
"""So many pieces of a text are made one."""


class TextWriter:
    """One text of the item ``id`` (a new one is made without it), which is at ``index`` of the
    output. ``place`` is that of the part within the item. ``pieces``, ``logprobs`` and
    ``annotations`` are what was streamed so far.
    """

    stem: ClassVar[str]
    """What the types of its events begin with."""
    id_prefix: ClassVar[str] = "item_"
    place_name: ClassVar[str] = ""
    delta_tail: ClassVar[bytes] = b"}"

    __slots__ = (
        "_at", "_delta_end", "_delta_start", "_delta_tail", "_delta_type", "_joined", "_out",
        "annotations", "builder", "id", "index", "logprobs", "pieces",
    )  # fmt: skip

    def __init__(
        self, builder: ResponseBuilder, index: int, out: list[Frame], id: str = "", place: int = 0
    ) -> None:
        self.builder = builder
        self.id = id = id or builder.new_id(self.id_prefix)
        self.index = index
        self.pieces: list[str] = []
        self.logprobs: list[Item] = []
        self.annotations: list[Item] = []
        self._out = out
        # Where it is, which every event between the item's first and its last says.
        self._at: Item = {"item_id": id, "output_index": index}
        named = b""
        if self.place_name:
            self._at[self.place_name] = place
            named = b',"%b":%d' % (self.place_name.encode(), place)
        self._joined = 0
        self._delta_type = kind = f"{self.stem}.delta"
        self._delta_start = b'event: %b\ndata: {"type":"%b","sequence_number":' % (
            kind.encode(),
            kind.encode(),
        )
        end = b',"item_id":"%b","output_index":%d%b,"delta":'
        self._delta_end = end % (id.encode(), index, named)
        self._delta_tail = self.delta_tail + b"\n\n"

    def delta(self, text: str, encoded: bytes | None = None) -> None:
        """Stream a piece, which may be ``encoded`` as JSON already. The frame is put together from
        prepared bytes: this is the hot path.
        """
        builder = self.builder
        sequence = builder.sequence
        builder.sequence = sequence + 1
        pieces = self.pieces
        pieces.append(text)
        if len(pieces) - self._joined >= _MANY:  # many short strings are large
            pieces[self._joined :] = ["".join(pieces[self._joined :])]
            self._joined += 1
        wire = b"%b%d%b%b%b" % (
            self._delta_start,
            sequence,
            self._delta_end,
            orjson.dumps(text) if encoded is None else encoded,
            self._delta_tail,
        )
        self._out.append(EncodedFrame(self._delta_type, wire))


class PartWriter(TextWriter):
    """A text in a part of its own."""

    part_stem: ClassVar[str] = "response.content_part"
    place_name = "content_index"
    field: ClassVar[str] = "text"
    with_logprobs: ClassVar[bool] = False

    __slots__ = ()

    def open_part(self, part: Item) -> None:
        """Announce the part; its text is empty."""
        self._out.append(self.builder.event(f"{self.part_stem}.added", {**self._at, "part": part}))

    def close_part(self, part: Item) -> None:
        """The events after the last delta; ``part`` is the complete one."""
        done = {**self._at, self.field: part[self.field]}
        if self.with_logprobs:
            done["logprobs"] = part["logprobs"]
        self._out.append(self.builder.event(f"{self.stem}.done", done))
        self._out.append(self.builder.event(f"{self.part_stem}.done", {**self._at, "part": part}))


class OutputText(PartWriter):
    """Output text, with the log probabilities where they were asked for."""

    stem = "response.output_text"
    with_logprobs = True
    delta_tail = b',"logprobs":[]}'

    __slots__ = ()

    def delta_with_logprobs(self, text: str, logprobs: list[dict[str, Any]]) -> None:
        """Stream a piece with its log probabilities (``token``, ``logprob``, ``top_logprobs``)."""
        self.pieces.append(text)
        self.logprobs.extend(logprobs)
        said = {**self._at, "delta": text, "logprobs": logprobs}
        self._out.append(self.builder.event(self._delta_type, said))

    def annotate(self, annotations: list[dict[str, Any]]) -> None:
        """Announce annotations of what was streamed so far."""
        kind = f"{self.stem}.annotation.added"
        for place, annotation in enumerate(annotations, len(self.annotations)):
            told = {**self._at, "annotation_index": place, "annotation": annotation}
            self._out.append(self.builder.event(kind, told))
        self.annotations += annotations


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
        done = {**self._at, **{name: item[name] for name in self.done_fields}}
        self._out.append(self.builder.event(f"{self.stem}.done", done))


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


class _PartItem(ItemWriter, PartWriter):
    """An item with one part, in its list ``parts``."""

    parts: ClassVar[str] = "content"

    __slots__ = ()

    def open(self) -> None:
        item = self.finished("in_progress")
        part = item[self.parts].pop()  # it is announced by itself
        added = {"output_index": self.index, "item": item}
        self._out.append(self.builder.event("response.output_item.added", added))
        self.open_part(part)

    def close(self, status: str) -> Item:
        item = self.finished(status)
        self.close_part(item[self.parts][0])
        done = {"output_index": self.index, "item": item}
        self._out.append(self.builder.event("response.output_item.done", done))
        return item


class _MessageItem(_PartItem):
    """An assistant message with one content part."""

    id_prefix = "msg_"
    part_type: ClassVar[str]

    __slots__ = ()

    def finished(self, status: str) -> Item:
        part: Item = {"type": self.part_type, self.field: "".join(self.pieces)}
        if self.with_logprobs:
            part["annotations"] = list(self.annotations)
            part["logprobs"] = list(self.logprobs)
        return {
            "id": self.id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [part],
        }


class TextItem(_MessageItem, OutputText):
    """A message of output text, with the log probabilities where they were asked for."""

    part_type = "output_text"

    __slots__ = ()


class RefusalItem(_MessageItem, RefusalText):
    """A message that refuses."""

    part_type = "refusal"

    __slots__ = ()


class ReasoningItem(_PartItem, SummaryText):
    """Reasoning, streamed as one summary part: the form that every client of the API reads.
    ``encrypted`` is what can be sent back of it, where the endpoint has encrypted it.
    """

    id_prefix = "rs_"
    parts = "summary"

    __slots__ = ("encrypted",)

    encrypted: str | None

    def open(self) -> None:
        self.encrypted = None
        super().open()

    def finished(self, status: str) -> Item:
        summary = [{"type": "summary_text", "text": "".join(self.pieces)}]
        item: Item = {"id": self.id, "type": "reasoning", "summary": summary}
        if self.encrypted is not None:
            item["encrypted_content"] = self.encrypted
        return item


class SilentReasoningItem(ReasoningItem):
    """Reasoning without a text."""

    __slots__ = ()

    def open(self) -> None:
        self.encrypted = None
        added = {"output_index": self.index, "item": self.finished("in_progress")}
        self._out.append(self.builder.event("response.output_item.added", added))

    def close(self, status: str) -> Item:
        item = self.finished(status)
        done = {"output_index": self.index, "item": item}
        self._out.append(self.builder.event("response.output_item.done", done))
        return item

    def finished(self, status: str) -> Item:
        return {**super().finished(status), "summary": []}
