"""The texts inside an output item: announced, streamed in pieces, closed.

A message or a piece of reasoning has its texts in parts, of which there may be several; a tool
call has just one, without a part around it. The order of events is the wire contract's (section
6). A writer appends frames to the list it was given.
"""

from __future__ import annotations

from typing import Any, ClassVar

import orjson

from router.response.builder import ResponseBuilder
from router.response.frame import Frame

__all__ = [
    "ArgumentsText",
    "InputText",
    "OutputText",
    "PartWriter",
    "RawReasoningText",
    "RefusalText",
    "SummaryText",
    "TextWriter",
]

Part = dict[str, Any]


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
        "_delta_end",
        "_delta_start",
        "_delta_type",
        "_out",
        "builder",
        "id",
        "index",
        "pieces",
        "place",
    )

    def __init__(
        self,
        builder: ResponseBuilder,
        index: int,
        out: list[Frame],
        id: str = "",
        place: int = 0,
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

    def open_part(self, part: Part) -> None:
        """Announce the part; its text is empty."""
        self._inside(f"{self.part_stem}.added", part=part)

    def close_part(self, part: Part) -> None:
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
        for place, annotation in enumerate(annotations):
            self._inside(
                f"{self.stem}.annotation.added", annotation_index=place, annotation=annotation
            )


class RefusalText(PartWriter):
    """The text of a refusal."""

    stem = "response.refusal"
    field = "refusal"

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
