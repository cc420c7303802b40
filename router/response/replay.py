"""A finished answer, told again: the whole sequence of events, or the Response object alone.

``retold`` is what of one Response object also holds for another that gives the same answer.
``pieces`` cuts a finished text into what is told of it at a time.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.response.builder import ResponseBuilder
from router.response.frame import Frame
from router.response.hosted_events import HOSTED_EVENTS, begin_events, end_events
from router.response.items import (
    ArgumentsText,
    InputText,
    OutputText,
    PartWriter,
    RawReasoningText,
    RefusalText,
    SummaryText,
)

__all__ = [
    "MAX_PIECES",
    "OUTCOME",
    "Replay",
    "frame_tokens",
    "pieces",
    "replay",
    "retold",
    "with_logprobs",
]

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
    if builder.echo["model"] != answer["model"]:
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
            _tell(builder, index, item, frames)
    final = builder.snapshot("completed", output, answer["usage"], **fields)
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
    kind = item.get("type")
    if kind in HOSTED_EVENTS:
        # What it came to is told at its end.
        fresh = {"status": "in_progress", "output": None}
        begun = {**item, **{name: fresh[name] for name in fresh if name in item}}
        events = [*begin_events(begun, index), *end_events(item, index)]
        out.extend(builder.event(*event) for event in events)
        return
    lists = _LISTS.get(kind, ())
    field, make = _CALLS.get(kind, _NO_CALL)
    # A live stream announces it in progress, with nothing in it.
    begun = dict(item)
    if "status" in begun:
        begun["status"] = "in_progress"
    if kind == "reasoning":
        begun.pop("encrypted_content", None)
    for name in lists:
        if begun.get(name):
            begun[name] = []
    if isinstance(begun.get(field), str):
        begun[field] = ""
    out.append(builder.event("response.output_item.added", {"output_index": index, "item": begun}))
    for name in lists:
        for place, part in enumerate(item.get(name) or ()):
            _tell_part(builder, index, out, item["id"], place, part)
    if isinstance(item.get(field), str) and isinstance(item.get("name"), str):
        call = make(builder, index, out, item["id"])
        for piece in pieces(item[field]) or _NO_PIECE:
            call.delta(piece)
        call.close_text(item)
    out.append(builder.event("response.output_item.done", {"output_index": index, "item": item}))


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


MAX_PIECES: Final = 2000
"""In so many pieces, or one more, a text is told however long it is."""

_BYTES_PER_TOKEN: Final = 4
_RUN: Final = 8
"""Characters of a piece of what has no white space."""

_LONGEST_WORD: Final = 24
_LONGEST_CLUSTER: Final = 64
"""A character with more marks than that may be cut."""

# Other scripts than Latin do without white space more often: there a run is cut sooner.
_ASCII_WORDS: Final = re.compile(r"\S{1,32}(?!\S)\s*|\S{8}|\s+")
_WORDS: Final = re.compile(r"\S{1,16}(?!\S)\s*|\S{8}|\s+")
_BLANK: Final = re.compile(r"\s+")

_JOINER: Final = "\u200d"
_FIRST_MARK: Final = "\u0300"
_MARKS: Final = frozenset({"Mn", "Mc", "Me"})
_REGIONAL: Final = "".join(map(chr, range(0x1F1E6, 0x1F200)))
"""The letters that flags are made of."""


def pieces(text: str) -> list[str]:
    """Cut a text into words, each with the white space after it; joined they are the text.

    Long runs without white space are cut, though not between a character and its marks. The
    longer the text, the longer the pieces, so that there are never more than some 2000.
    """
    if len(text) > 2 * MAX_PIECES:
        cut = _long_pieces(text)
    else:
        cut = (_ASCII_WORDS if text.isascii() else _WORDS).findall(text)
    return cut if text.isascii() else _mended(cut)


def with_logprobs(text: str, logprobs: list[Item]) -> list[tuple[str, list[Item]]]:
    """Pieces of a text, each with the log probabilities of its tokens.

    Where the tokens are not those of the text, the last piece has them all.
    """
    cut = _by_tokens(text, logprobs)
    if cut is not None:
        return cut
    *others, last = pieces(text) or [""]
    return [*((piece, []) for piece in others), (last, logprobs)]


def frame_tokens(frame: Frame) -> float:
    """About how many tokens an event brings, a Responses event or a chat chunk; 0 for others.

    Counted where there are log probabilities, else estimated from the text.
    """
    if frame.type.endswith(".delta"):
        event = orjson.loads(frame.data)
        return _weight(event.get("delta"), event.get("logprobs"))
    if frame.type or frame.data == b"[DONE]":
        return 0.0
    choices = orjson.loads(frame.data).get("choices")
    if not choices:
        return 0.0
    delta = choices[0].get("delta") or {}
    said = "".join(text for key, text in delta.items() if key != "role" and isinstance(text, str))
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or call.get("custom") or {}
        said += function.get("arguments") or function.get("input") or ""
    return _weight(said, (choices[0].get("logprobs") or {}).get("content"))


def _weight(text: Any, logprobs: Any) -> float:
    if logprobs:
        return float(len(logprobs))
    # Bytes rather than characters: of other scripts a token holds fewer.
    return len(text.encode()) / _BYTES_PER_TOKEN if isinstance(text, str) else 0.0


def _by_tokens(text: str, logprobs: list[Item]) -> list[tuple[str, list[Item]]] | None:
    """The text cut between tokens, or None where they are not those of the text.

    A token may be a part of a character: it goes with those that complete it.
    """
    per_piece = -(-len(logprobs) // MAX_PIECES)
    cut: list[tuple[str, list[Item]]] = []
    octets, entries = b"", []
    try:
        for number, entry in enumerate(logprobs, 1):
            known = entry.get("bytes")
            octets += entry["token"].encode() if known is None else bytes(known)
            entries.append(entry)
            if number % per_piece == 0 and (piece := _decoded(octets)):
                cut.append((piece, entries))
                octets, entries = b"", []
        if octets or not cut:
            cut.append((octets.decode(), entries))
        else:
            cut[-1][1].extend(entries)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return cut if "".join(piece for piece, _ in cut) == text else None


def _decoded(octets: bytes) -> str:
    """The text of these bytes; empty where they end within a character."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return ""


def _long_pieces(text: str) -> list[str]:
    """Pieces of at least 1/2000 of the text, each up to the end of a word where one is near."""
    size = -(-len(text) // MAX_PIECES)
    cut = []
    start = 0
    while start < len(text):
        soonest = start + size
        blank = _BLANK.search(text, soonest - 1, soonest + _LONGEST_WORD)
        end = blank.end() if blank else start + max(size, _RUN)
        cut.append(text[start:end])
        start = end
    return cut


def _mended(cut: list[str]) -> list[str]:
    """The pieces, with what a reader sees as one character in one of them."""
    whole = cut[:1]
    for piece in cut[1:]:
        taken = _belonging(piece, whole[-1])
        if taken:
            whole[-1] += piece[:taken]
        if taken < len(piece):
            whole.append(piece[taken:])
    return whole


def _belonging(piece: str, before: str) -> int:
    """How many characters at the beginning of ``piece`` are shown as one with what is before."""
    if piece[0] < _FIRST_MARK and before[-1] != _JOINER:
        return 0
    before = before[-_LONGEST_CLUSTER:]
    taken = 0
    for char in piece[:_LONGEST_CLUSTER]:
        if not _belongs(char, before):
            break
        before += char
        taken += 1
    return taken


def _belongs(char: str, before: str) -> bool:
    if before[-1] == _JOINER or char == _JOINER or unicodedata.category(char) in _MARKS:
        return True
    if char in _REGIONAL:  # a flag is two of them
        return (len(before) - len(before.rstrip(_REGIONAL))) % 2 == 1
    # The colours of skin, the tags of flags, and the vowels and finals of a Hangul syllable.
    return (
        "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
        or "\u1160" <= char <= "\u11ff"
    )
