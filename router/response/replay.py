"""A finished answer, told again: the whole sequence of events, or the Response object alone.

``retold`` is what of one Response object also holds for another that gives the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from router.response.builder import ResponseBuilder, StreamState
from router.response.frame import Frame
from router.response.items import (
    ArgumentsText,
    InputText,
    OutputText,
    PartWriter,
    RawReasoningText,
    RefusalText,
    SummaryText,
)
from router.response.pieces import frame_tokens, pieces, with_logprobs

__all__ = ["OUTCOME", "Replay", "frame_tokens", "pieces", "replay", "retold"]

Item = dict[str, Any]

_PREFIXES: Final[Mapping[Any, str]] = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
}
_LONGEST_PREFIX: Final = 8
_PARTS: Final[Mapping[str, type[PartWriter]]] = {
    "output_text": OutputText,
    "refusal": RefusalText,
    "reasoning_text": RawReasoningText,
    "summary_text": SummaryText,
}
_CALLS: Final[Mapping[Any, tuple[str, type[ArgumentsText]]]] = {
    "function_call": ("arguments", ArgumentsText),
    "custom_tool_call": ("input", InputText),
}
_NO_CALL: Final = ("", ArgumentsText)
_LISTS: Final[Mapping[Any, tuple[str, ...]]] = {
    "message": ("content",),
    "reasoning": ("content", "summary"),
}
"""The lists of parts in an item, in the order in which they are told."""

_HAVE_STATUS: Final = frozenset({"message", "function_call"})
_NO_PIECE: Final = ("",)
"""An empty text has one delta, too: nothing is done that has not begun."""

_OWN: Final = frozenset({"id", "object", "created_at", "billing"})
"""What each response has for itself, beside the fields of its request."""

OUTCOME: Final = (
    "status",
    "completed_at",
    "error",
    "incomplete_details",
    "output",
    "output_text",
    "usage",
)
"""What came of a request."""

_NOT_RETOLD: Final = _OWN.union(OUTCOME)

_MAY_CHANGE: Final = "service_tier"


@dataclass(frozen=True, slots=True)
class Replay:
    """``frames`` are the events, none with a muted response builder; ``final`` is the Response
    object, ``encrypted_reasoning`` the encrypted reasoning beside it by item id.
    """

    frames: list[Frame]
    final: dict[str, Any]
    encrypted_reasoning: dict[str, str]


def replay(builder: ResponseBuilder, answer: Mapping[str, Any]) -> Replay:
    """Tell a completed answer as the answer to this response builder's request.

    ``answer`` is ``{"model", "output", "usage", "fields", "hidden"}``: of a finished Response,
    ``fields`` its other fields, ``encrypted_reasoning`` encrypted reasoning by item id. Items get
    new ids, ``call_id`` stays. What says who asked, when and to what end is the response builder's
    own; so is what the client has been told, where the response builder was opened before. Nothing
    in ``answer`` is changed, but the final object shares values with it.
    """
    told = builder.dated
    builder.served_by(answer["model"])
    fields = retold(builder, answer["fields"], told=told)
    fields["model"] = builder.echo["model"]
    output, encrypted_reasoning = [], {}
    for old in answer["output"]:
        item, known = _renewed(builder, old), old.get("id")
        output.append(item)
        if isinstance(known, str) and known in answer["hidden"]:
            encrypted_reasoning[item["id"]] = answer["hidden"][known]
    if builder.muted:
        frames = builder.open()
    else:
        frames = builder.open(builder.snapshot("in_progress", **fields))
        for index, item in enumerate(output):
            builder.advance(StreamState.ITEM)
            _tell(builder, index, item, frames)
            builder.advance(StreamState.BETWEEN)
    final = builder.finished("completed", output, answer["usage"], **fields)
    last = builder.end(final)
    return Replay([] if builder.muted else [*frames, last], final, encrypted_reasoning)


def retold(builder: ResponseBuilder, fields: Mapping[str, Any], *, told: bool) -> dict[str, Any]:
    """Those of another Response's ``fields`` that this response builder's may have, too: neither
    what each has for itself nor the outcome.

    ``told``: the client has seen what the response builder says of itself, so that it must stay.
    """
    kept = dict(fields)
    for name in (*_NOT_RETOLD, *builder.own_fields):
        kept.pop(name, None)
    if told:
        for name in builder.echo:
            if name != _MAY_CHANGE:
                kept.pop(name, None)
    return kept


def _renewed(builder: ResponseBuilder, old: Item) -> Item:
    """An item as it ends, with a new id and with what the contract has in all of its kind."""
    kind = old.get("type")
    item = {**old, "id": builder.new_id(_PREFIXES.get(kind) or _prefix(old.get("id")))}
    if kind in _HAVE_STATUS:
        item["status"] = item.get("status") or "completed"
    if kind == "function_call" and not (item.get("arguments") or "").strip():
        item["arguments"] = "{}"
    for name in _LISTS.get(kind, ()):
        if not isinstance(item.get(name), list):
            continue
        parts = item[name] = []
        for part in old[name]:
            if not isinstance(part, dict):
                continue
            if part.get("type") == "output_text":
                part = dict(part)
                for member in ("annotations", "logprobs"):
                    part[member] = part.get(member) or []
            parts.append(part)
    return item


def _prefix(known: Any) -> str:
    """That of the id of an item of no kind known here."""
    prefix, mark, _ = known.partition("_") if isinstance(known, str) else ("", "", "")
    return f"{prefix}_" if mark and 0 < len(prefix) < _LONGEST_PREFIX else "item_"


def _tell(builder: ResponseBuilder, index: int, item: Item, out: list[Frame]) -> None:
    """The events of one item. What is of no kind known here just comes and is done."""
    added = {"output_index": index, "item": _begun(item)}
    out.append(builder.event("response.output_item.added", added))
    for name in _LISTS.get(item.get("type"), ()):
        for place, part in enumerate(item.get(name) or ()):
            _tell_part(builder, index, out, item["id"], place, part)
    field, make = _CALLS.get(item.get("type"), _NO_CALL)
    if isinstance(item.get(field), str) and isinstance(item.get("name"), str):
        call = make(builder, index, out, item["id"])
        for piece in pieces(item[field]) or _NO_PIECE:
            call.delta(piece)
        call.close_text(item)
    out.append(builder.event("response.output_item.done", {"output_index": index, "item": item}))


def _begun(item: Item) -> Item:
    """The item as a live stream announces it: in progress, with nothing in it."""
    begun = dict(item)
    if "status" in begun:
        begun["status"] = "in_progress"
    if item.get("type") == "reasoning":
        begun.pop("encrypted_content", None)
    for name in _LISTS.get(item.get("type"), ()):
        if begun.get(name):
            begun[name] = []
    field, _ = _CALLS.get(item.get("type"), _NO_CALL)
    if isinstance(begun.get(field), str):
        begun[field] = ""
    return begun


def _tell_part(
    builder: ResponseBuilder, index: int, out: list[Frame], id: str, place: int, part: Item
) -> None:
    make = _PARTS.get(part.get("type", ""))
    text = part.get(make.field) if make is not None else None
    if make is None or not isinstance(text, str):
        at = {"item_id": id, "output_index": index, "content_index": place, "part": part}
        out.append(builder.event("response.content_part.added", at))
        out.append(builder.event("response.content_part.done", at))
        return
    writer = make(builder, index, out, id, place)
    begun = {**part, writer.field: ""}
    if isinstance(writer, OutputText):
        writer.open_part({**begun, "annotations": [], "logprobs": []})
        if part["logprobs"]:
            for piece, entries in with_logprobs(text, part["logprobs"]):
                writer.delta_with_logprobs(piece, entries)
        else:
            for piece in pieces(text) or _NO_PIECE:
                writer.delta(piece)
        if part["annotations"]:
            writer.annotate(part["annotations"])
    else:
        writer.open_part(begun)
        for piece in pieces(text) or _NO_PIECE:
            writer.delta(piece)
    writer.close_part(part)
