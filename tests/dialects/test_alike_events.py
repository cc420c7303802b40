"""Events that are recognised by their bytes are read as if each had been decoded.

Every stream here is read twice: once as it is, and once by a reader that learns nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from router.dialects import passthrough
from router.dialects.chat import decode_stream
from router.dialects.chat.decode_stream import ChatDecoder
from router.dialects.chat.passthrough import ChatPassthrough
from router.dialects.completions.decode_stream import CompletionPassthrough
from router.dialects.responses import streamed
from router.dialects.responses.plain_types import PlainTypesDecoder
from router.response.call_items import ToolName
from router.response.decoder import StreamDecoder
from router.response.frame import EncodedFrame, Frame
from router.response.machine import MachineOptions
from router.response.text_template import MOST_USELESS, PassedText
from tests.support import native as natives
from tests.support.reading import BROKEN, FUZZ, in_bytes, make_builder, native, sse

MORE = examples(FUZZ, max_examples=100)
Members = list[tuple[str, Any]]

HOSTILE = [
    '","delta":"',
    '"delta":"x"',
    '{"delta":"x","sequence_number":7}',
    '\\","sequence_number":9,"delta":"',
    '"}\n\ndata: {"type":"response.completed"}\n\n',
    "data: [DONE]\n\n",
    '"content":"x"',
    ',"obfuscation":"aa"}',
    "\\u0022",
    "\u2028\x7f\x00\t\r\n",
    "😀é%d%b%%",
    "",
    " ",
    "</think>",
    "<think>",
]
TEXTS = st.sampled_from(HOSTILE) | st.text(max_size=8)
KINDS = st.sampled_from(
    [
        "response.output_text.delta",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
    ]
)


@contextmanager
def nothing_learned() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (streamed, passthrough, decode_stream):
            stack.enter_context(patch.object(module, "MOST_USELESS", 0))
        yield


@st.composite
def written(draw: st.DrawFn, members: Members) -> bytes:
    """A JSON object of these members, in the style of some server."""
    style = draw(st.integers(0, 5))
    if style == 1:
        members = sorted(members, key=lambda member: member[0])
    elif style == 2:
        members = draw(st.permutations(members))
    elif style == 3:
        members = [*members, draw(st.sampled_from(members))]
    elif style == 4:
        members = [*members, ("other", dict(members))]
    comma, colon = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :\t")]))
    plain = draw(st.booleans())
    pairs = (
        json.dumps(name) + colon + json.dumps(value, separators=(comma, colon), ensure_ascii=plain)
        for name, value in members
    )
    return ("{" + comma.join(pairs) + "}").encode()


@st.composite
def alike(draw: st.DrawFn, made: Callable[[str, int], Members]) -> list[bytes]:
    """Objects that mostly differ only in their text, with others among them."""
    objects = []
    first = draw(st.integers(0, 6))
    for number in range(first, first + draw(st.integers(2, 7))):
        number += draw(st.sampled_from([0] * 9 + [3]))
        members = made(draw(TEXTS), number)
        if draw(st.sampled_from([False] * 6 + [True])):
            objects.append(draw(written(members)))
        else:
            objects.append(orjson.dumps(dict(members)))
        if draw(st.sampled_from([False] * 9 + [True])):
            data = bytearray(objects[-1])
            data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from(b'"\\{}:,\n x\xff'))
            objects[-1] = bytes(data)
    return objects


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """``data`` in reads: event by event, at once, or anyhow."""
    how = draw(st.integers(0, 3))
    if how == 0:
        return [data]
    if how == 1:
        return [block + b"\n\n" for block in data.split(b"\n\n") if block]
    if how == 2:
        places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
        return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    return in_bytes(data)


def seen(subject: StreamDecoder, reads: list[bytes]) -> list[Any]:
    """Everything that reading tells, in the order in which it does."""
    told: list[Any] = []
    for read in reads:
        frames = subject.feed(read)
        told += [_shown(frame) for frame in frames]
        told.append((subject.has_output, subject.ended, subject.output_chars))
    told.append(subject.error and subject.error.message)
    told += [_shown(frame) for frame in subject.fail(BROKEN)]
    return [*told, subject.final, subject.usage]


def _shown(frame: Frame) -> tuple[Any, ...]:
    if frame.data == b"[DONE]":
        return frame.type, frame.data
    return frame.type, frame.encode(), frame.data, frame.json()


def check(make: Callable[[], StreamDecoder], reads: list[bytes]) -> None:
    with nothing_learned():
        decoded = seen(make(), reads)
    assert seen(make(), reads) == decoded


def native_text(kind: str) -> Callable[[str, int], Members]:
    def made(text: str, number: int) -> Members:
        at = [("item_id", "msg_1"), ("output_index", 0), ("content_index", 0)]
        return [("type", kind), ("sequence_number", number), *at, ("delta", text)]

    return made


def opening(ident: str) -> bytes:
    item = {"type": "message", "id": ident, "status": "in_progress", "content": []}
    return native(
        {"type": "response.created", "response": natives.begun()},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
    )


@pytest.mark.parametrize("ident", ["msg_1", f"msg_{natives.UNIQUE}"])
@MORE
@given(st.data())
def test_native_streams(ident: str, data: st.DataObject) -> None:
    blocks = [opening(ident)]
    for kind in data.draw(st.lists(KINDS, min_size=1, max_size=3)):
        named = data.draw(st.booleans())
        for event in data.draw(alike(native_text(kind))):
            blocks.append(b"event: %b\n" % kind.encode() if named else b"")
            blocks.append(b"data: %b\n\n" % event)
    check(natives.decoder, data.draw(cut(b"".join(blocks))))


@MORE
@given(st.data())
def test_padded_and_unnumbered_native_streams(data: st.DataObject) -> None:
    kind = data.draw(KINDS)
    numbered = data.draw(st.booleans())
    padding = data.draw(st.sampled_from(["a", "0Zz", "", '"', "-"]))

    def made(text: str, number: int) -> Members:
        members = native_text(kind)(text, number)
        if not numbered:
            del members[1]
        return [*members, ("obfuscation", padding * (1 + len(text) % 3))]

    body = sse(*data.draw(alike(made)))
    check(natives.decoder, data.draw(cut(opening("msg_1") + body)))


@MORE
@given(st.data())
def test_calls_at_endpoints_without_all_types(data: st.DataObject) -> None:
    kind = "response.function_call_arguments.delta"

    def made(text: str, number: int) -> Members:
        return [("type", kind), ("sequence_number", number), ("output_index", 0), ("delta", text)]

    item = natives.call(data.draw(st.sampled_from(["f", "g", "h"])), "")
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    body = native(added, start=2) + sse(*data.draw(alike(made)))
    names = {"f": ToolName("custom", "c"), "g": ToolName("function", "n", "space")}

    def make() -> StreamDecoder:
        return PlainTypesDecoder(names, make_builder(), natives.ACCOUNT, str)

    check(make, data.draw(cut(opening("msg_1") + body)))


FIELDS = st.sampled_from(["content", "reasoning_content", "reasoning", "refusal", "arguments"])


def chat_text(field: str, **others: Any) -> Callable[[str, int], Members]:
    def made(text: str, number: int) -> Members:
        delta: dict[str, Any] = {field: text}
        if field == "arguments":
            call = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": text}}
            delta = {"tool_calls": [call]}
        choice = {"index": 0, "delta": delta, "finish_reason": None, **others}
        return [("id", "c"), ("model", "theirs"), ("choices", [choice]), ("usage", None)]

    return made


def completion_text(others: dict[str, Any], text: str, number: int) -> Members:
    return [("id", "c"), ("choices", [{"index": 0, "text": text, **others}]), ("model", "theirs")]


MORE_OF_A_CHOICE: list[dict[str, Any]] = [
    {},
    {"logprobs": None},
    {"logprobs": {"content": []}},
    {"finish_reason": "stop"},
]
OTHERS = st.sampled_from(MORE_OF_A_CHOICE)
CHATS: dict[str, Callable[[], StreamDecoder]] = {
    "passed": lambda: ChatPassthrough(model="theirs", wants_usage=False),
    "renamed": lambda: ChatPassthrough(model="m", wants_usage=True),
    "translated": lambda: ChatDecoder(make_builder(), MachineOptions()),
    "logprobs": lambda: ChatDecoder(make_builder(), MachineOptions(logprobs=True)),
    "forced": lambda: ChatDecoder(make_builder(), MachineOptions(forced_call=True)),
    "completions": lambda: CompletionPassthrough({}, model="m", wants_usage=False),
}


@pytest.mark.parametrize("reader", CHATS)
@MORE
@given(st.data())
def test_chat_streams(reader: str, data: st.DataObject) -> None:
    chunks: list[bytes] = []
    for field in data.draw(st.lists(FIELDS, min_size=1, max_size=3)):
        others = data.draw(OTHERS)
        if reader == "completions":
            chunks += data.draw(alike(partial(completion_text, others)))
        else:
            chunks += data.draw(alike(chat_text(field, **others)))
    end = data.draw(st.sampled_from([b"", b"data: [DONE]\n\n"]))
    check(CHATS[reader], data.draw(cut(sse(*chunks) + end)))


@pytest.mark.parametrize("reader", ["native", "passed", "renamed", "translated"])
def test_most_of_a_stream_is_recognised(reader: str) -> None:
    made = native_text("response.output_text.delta") if reader == "native" else chat_text("content")
    objects = [orjson.dumps(dict(made(f"word {n}\n", n + 2))) for n in range(20)]
    subject = natives.decoder() if reader == "native" else CHATS[reader]()
    if reader == "native":
        subject.feed(opening("msg_1"))
    module = {"native": streamed, "translated": decode_stream}.get(reader, passthrough)
    name = "TextTemplate" if reader == "translated" else "PassedText"
    with patch.object(module, name, wraps=getattr(module, name)) as learned:
        frames = [frame for one in objects for frame in subject.feed(sse(one))]
    assert learned.of.call_count == 1
    texts = [frame for frame in frames if b"word" in frame.data]
    assert len(texts) == 20
    assert all(isinstance(frame, EncodedFrame) for frame in texts[2:])


def test_a_stream_whose_events_are_never_alike_is_not_learned_from_for_ever() -> None:
    subject = ChatPassthrough(model="m", wants_usage=False)
    with patch.object(passthrough, "PassedText", wraps=PassedText) as learned:
        for n in range(200):
            subject.feed(sse({**dict(chat_text("content")("a", n)), "created": n}))
    assert learned.of.call_count == MOST_USELESS
    assert subject.output_chars == 200
