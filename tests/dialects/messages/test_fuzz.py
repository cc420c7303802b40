"""Whatever an endpoint says, in whatever reads: one stream, which obeys the grammar of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.dialects.chat.decode_stream import ChatDecoder
from router.dialects.messages.encode_stream import MessagesEncoder
from router.dialects.messages.thinking import Show
from router.dialects.ollama.decode_stream import OllamaDecoder
from router.dialects.responses.decode_stream import ResponsesDecoder
from router.response.decoder import StreamDecoder
from tests.support import chat as chats
from tests.support import native as natives
from tests.support.anthropic import check_stream, events_of
from tests.support.reading import BROKEN, FUZZ, in_bytes, make_builder, native, ollama, sse

MORE = settings(FUZZ, max_examples=60)
SHOWS: list[Show] = ["text", "signature", "nothing"]
TEXTS = st.sampled_from(["A", "ö€😀", "\n", "", " ", "<think>", "</think>"])
FRAGMENTS = st.sampled_from(["", "{", '{"a":', "1", "}", "{}"])


def told(decoder: StreamDecoder, reads: list[bytes], show: Show) -> list[dict[str, Any]]:
    """What the client is told; an answer that breaks is ended as the pipeline ends it."""
    encoder = MessagesEncoder(show, "req_1")
    frames = [frame for read in reads for frame in encoder.frames(decoder.feed(read))]
    frames += encoder.frames(decoder.finish())
    if not decoder.ended:
        frames += encoder.frames(decoder.fail(decoder.error or BROKEN))
    return events_of(frames)


def check(make: Callable[[], StreamDecoder], data: bytes, show: Show, size: int) -> None:
    at_once = told(make(), [data], show)
    assert told(make(), in_bytes(data, size), show) == at_once
    check_stream(at_once)


CHAT = st.lists(
    st.one_of(
        st.builds(
            lambda key, text: chats.chat_chunk(**{key: text}),
            st.sampled_from(["content", "reasoning_content", "refusal"]),
            TEXTS,
        ),
        st.builds(
            lambda index, text: chats.chat_chunk(
                **chats.tool(text, name="f", id=f"c{index}", index=index)
            ),
            st.sampled_from([0, 1, 2]),
            FRAGMENTS,
        ),
    ),
    max_size=10,
)
ENDS = st.sampled_from(["stop", "length", "content_filter", "tool_calls", None])


@MORE
@given(CHAT, ENDS, st.sampled_from(SHOWS), st.integers(1, 40))
def test_chat(chunks: list[Any], end: str | None, show: Show, size: int) -> None:
    last = [] if end is None else [chats.chat_chunk(end), b"[DONE]"]
    check(lambda: ChatDecoder(make_builder()), sse(*chunks, *last), show, size)


@MORE
@given(
    st.lists(
        st.one_of(
            st.builds(
                lambda key, text: {"role": "assistant", "content": "", key: text},
                st.sampled_from(["content", "thinking"]),
                TEXTS,
            ),
            st.just(
                {"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}
            ),
        ),
        max_size=8,
    ),
    st.sampled_from(["stop", "length", None]),
    st.sampled_from(SHOWS),
    st.integers(1, 40),
)
def test_ollama(lines: list[Any], end: str | None, show: Show, size: int) -> None:
    check(lambda: OllamaDecoder(make_builder()), ollama(*lines, reason=end), show, size)


ITEMS = st.sampled_from(
    [
        natives.message("Hi", "there"),
        natives.message(""),
        natives.refusal("No."),
        natives.call("f", '{"a": [1, 2]}'),
        natives.call("g", ""),
        {**natives.reasoning("blob"), "summary": [{"type": "summary_text", "text": "Hm"}]},
        natives.reasoning("blob"),
        natives.reasoning(),
        {"id": "ws", "type": "web_search_call", "status": "completed"},
    ]
)


@MORE
@given(
    st.lists(ITEMS, max_size=5),
    st.sampled_from(["completed", "incomplete", "failed", None]),
    st.sampled_from(SHOWS),
    st.integers(1, 200),
)
def test_native(items: list[Any], end: str | None, show: Show, size: int) -> None:
    check(natives.decoder, natives.answer(*items, end=end), show, size)


JUNK = st.sampled_from([None, 0, 1, -1, True, "", "x", [], {}, [1], {"a": 1}, ["f"]])
KINDS = [
    "output_item.added",
    "output_item.done",
    "output_text.delta",
    "refusal.delta",
    "reasoning_summary_text.delta",
    "reasoning_text.delta",
    "function_call_arguments.delta",
    "custom_tool_call_input.delta",
    "content_part.done",
    "web_search_call.searching",
]
ITEM_KINDS = ["message", "function_call", "reasoning", "odd", "custom_tool_call"]
JUNK_ITEM = st.one_of(
    JUNK,
    st.fixed_dictionaries(
        {"type": st.sampled_from(ITEM_KINDS)},
        optional={
            "content": st.one_of(JUNK, st.lists(st.one_of(JUNK, st.fixed_dictionaries({
                "type": st.sampled_from(["output_text", "refusal", "reasoning_text", 3]),
                "text": st.one_of(JUNK, TEXTS)})), max_size=2)),
            "summary": JUNK, "arguments": st.one_of(JUNK, FRAGMENTS), "name": JUNK,
            "call_id": JUNK, "encrypted_content": JUNK, "id": JUNK, "input": JUNK,
        },
    ),
)  # fmt: skip
JUNK_EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from([f"response.{kind}" for kind in KINDS])},
    optional={
        "output_index": JUNK,
        "item_id": JUNK,
        "content_index": JUNK,
        "summary_index": JUNK,
        "delta": st.one_of(TEXTS, JUNK),
        "item": JUNK_ITEM,
    },
)


@settings(FUZZ, max_examples=200)
@given(st.lists(JUNK_EVENT, max_size=8), st.lists(JUNK_ITEM, max_size=3), st.sampled_from(SHOWS))
def test_an_endpoint_that_makes_no_sense(events: list[Any], output: list[Any], show: Show) -> None:
    last = {"type": "response.completed", "response": natives.begun(output=output, usage={"x": 1})}
    data = native(natives.events(end=None)[0], *events, last)
    found = told(natives.decoder(), [data], show)
    assert check_stream(found) is None or found[-1]["type"] == "message_stop"


@pytest.mark.parametrize("show", SHOWS)
def test_one_piece_is_what_a_stream_adds_up_to(show: Show) -> None:
    items = [
        {**natives.reasoning("blob"), "summary": [{"type": "summary_text", "text": "Hm"}]},
        natives.message("Hi", "there"),
        natives.call("f", '{"a": [1, 2]}'),
        natives.reasoning("other"),
        natives.call("g", ""),
    ]
    streamed = check_stream(told(natives.decoder(), [natives.answer(*items)], show))
    final = natives.events(*items)[-1]["response"]
    decoder = ResponsesDecoder(make_builder(), natives.ACCOUNT)
    body = MessagesEncoder(show, None).whole(decoder.whole(orjson.dumps(final)))
    assert streamed == orjson.loads(body)
