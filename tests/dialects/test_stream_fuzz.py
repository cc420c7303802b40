"""Whatever an endpoint sends, in whatever reads: the same frames, or one typed error.

Nothing may be raised out of a reader, and after ``fail`` a client can read every stream.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.dialects.chat.decode_stream import ChatDecoder
from router.dialects.chat.encode_stream import ChatEncoder
from router.dialects.chat.passthrough import ChatPassthrough
from router.dialects.messages.decode_stream import MessagesDecoder
from router.dialects.messages.passthrough import MessagesPassthrough
from router.dialects.messages.schema import ANTHROPIC
from router.dialects.ollama.decode_stream import OllamaDecoder
from router.dialects.responses.decode_stream import ResponsesDecoder
from router.errors import UpstreamError
from router.response.decoder import StreamDecoder
from router.response.machine import MachineOptions
from tests.support import chat as chats
from tests.support import native as natives
from tests.support.order import TERMINAL, check_order, parse_sse
from tests.support.reading import (
    BROKEN,
    FUZZ,
    in_bytes,
    make_builder,
    native,
    read_all,
    sse,
    trace,
    traces,
)

MORE = settings(FUZZ, max_examples=80)
OPTIONS = MachineOptions(custom_tools=frozenset({"c"}), logprobs=True, prompt_tokens=lambda: 1)
Objects = list[dict[str, Any]]


@dataclass(frozen=True)
class Dialect:
    """How a kind of stream is written and read. ``ordered``: the events are the router's own, so
    that their order must hold whatever came in. ``passes``: they are the endpoint's.
    """

    decoder: Callable[[], StreamDecoder]
    encode: Callable[[Objects], bytes]
    whole: dict[str, Any]
    ordered: bool = True
    passes: bool = False


TOKEN = {"token": "A", "logprob": -1, "bytes": [65], "top_logprobs": [{"token": "B"}]}
CALLS = [
    {"id": "call_1", "index": 0, "function": {"name": "f", "arguments": '{"a":1}'}},
    {"id": "call_2", "index": 1, "function": {"name": "c", "arguments": '{"input":"x"}'}},
]
MESSAGE = {"content": "Hi", "reasoning_content": "hm", "refusal": "no", "tool_calls": CALLS}
CHOICE = {"message": MESSAGE, "logprobs": {"content": [TOKEN]}, "finish_reason": "stop"}
NATIVE = natives.begun(
    status="completed",
    output=[natives.reasoning("blob"), natives.message("Hi"), natives.call("f", "{}")],
    usage=natives.USAGE,
)
COUNTS = {"prompt_eval_count": 3, "eval_count": 2}
BLOCKS = [
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "redacted_thinking", "data": "d"},
    {"type": "text", "text": "Hi"},
    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
    {"type": "tool_use", "id": "toolu_2", "name": "c", "input": {"input": "x"}},
]
SAID = {
    "type": "message",
    "model": "m",
    "content": BLOCKS,
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 2},
}

DIALECTS = {
    "chat": Dialect(
        lambda: ChatDecoder(make_builder(), OPTIONS),
        lambda chunks: sse(*chunks, b"[DONE]"),
        {"choices": [CHOICE], "usage": chats.USAGE},
    ),
    "forced": Dialect(
        lambda: ChatDecoder(make_builder(), MachineOptions(forced_call=True)),
        lambda chunks: sse(*chunks, b"[DONE]"),
        {"choices": [{**CHOICE, "message": {"content": '{"name":"f","arguments":{"a":1}}'}}]},
    ),
    "ollama": Dialect(
        lambda: OllamaDecoder(make_builder(), OPTIONS),
        lambda lines: b"".join(orjson.dumps(line) + b"\n" for line in lines),
        {
            "message": {"content": "Hi", "thinking": "hm", "tool_calls": CALLS},
            "logprobs": [TOKEN],
            "done": True,
            **COUNTS,
        },
    ),
    "native": Dialect(
        lambda: natives.decoder(tools=[{"type": "function", "name": "f"}]),
        lambda events: native(*events),
        NATIVE,
        ordered=False,
    ),
    "told natively": Dialect(
        lambda: ChatEncoder(natives.decoder(), wants_usage=True),
        lambda events: native(*events),
        NATIVE,
        ordered=False,
    ),
    "told of ollama": Dialect(
        lambda: ChatEncoder(OllamaDecoder(make_builder(), OPTIONS), wants_usage=False),
        lambda lines: b"".join(orjson.dumps(line) + b"\n" for line in lines),
        {"message": {"content": "Hi", "tool_calls": CALLS}, "done": True, **COUNTS},
        ordered=False,
    ),
    "passthrough": Dialect(
        lambda: ChatPassthrough(model="m", wants_usage=False),
        lambda chunks: sse(*chunks, b"[DONE]"),
        {"choices": [CHOICE], "usage": chats.USAGE},
        ordered=False,
    ),
}

DIALECTS |= {
    "messages": Dialect(
        lambda: MessagesDecoder(make_builder(), OPTIONS, "acc"),
        lambda events: native(*events),
        SAID,
    ),
    "messages passed": Dialect(
        lambda: MessagesPassthrough(make_builder(), "m", ANTHROPIC.failed),
        lambda events: native(*events),
        SAID,
        ordered=False,
        passes=True,
    ),
}

PIECES = st.sampled_from(["A", "ö€😀", "\n", " ", "<think>", "</think>", "<", "{", '"x"', "\u2028"])
FRAGMENTS = st.sampled_from(["", "{", '{"a":', "1", "}", "{}", " "])


def chat_chunks() -> st.SearchStrategy[Objects]:
    call = st.builds(
        lambda index, name, fragment, id: chats.tool(fragment, name=name, id=id, index=index),
        st.sampled_from([0, 0, 1, None]),
        st.sampled_from(["f", "f", "c", None]),
        FRAGMENTS,
        st.sampled_from(["a", "b", None]),
    )
    text = st.builds(
        lambda key, piece: {key: piece},
        st.sampled_from(["content", "content", "reasoning", "reasoning_content", "refusal"]),
        PIECES,
    )
    logprobs = st.sampled_from([None, {"content": [TOKEN]}])
    chunk = st.builds(
        lambda delta, logprobs: chats.chat_chunk(logprobs=logprobs, **delta),
        st.one_of(text, text, call),
        logprobs,
    )
    usage = {"choices": [], "usage": chats.USAGE}
    finish = st.sampled_from(["stop", "length", "tool_calls", "content_filter"])
    return st.builds(
        lambda chunks, reason, more: [*chunks, chats.chat_chunk(reason), *more],
        st.lists(chunk, max_size=8),
        finish,
        st.sampled_from([[], [usage]]),
    )


def ollama_lines() -> st.SearchStrategy[Objects]:
    call = st.fixed_dictionaries(
        {
            "name": st.sampled_from(["f", "c"]),
            "arguments": st.sampled_from([{}, {"a": [1]}, {"input": "x"}, "{}", None]),
        }
    )
    calls = st.builds(lambda function: {"tool_calls": [{"function": function}]}, call)
    text = st.builds(
        lambda key, piece: {key: piece}, st.sampled_from(["content", "thinking"]), PIECES
    )
    line = st.builds(lambda message: {"message": message, "done": False}, st.one_of(text, calls))
    return st.builds(
        lambda lines, reason: [*lines, {"done": True, "done_reason": reason, **COUNTS}],
        st.lists(line, max_size=8),
        st.sampled_from(["stop", "length"]),
    )


def native_events() -> st.SearchStrategy[Objects]:
    item = st.one_of(
        st.builds(natives.message, PIECES, PIECES),
        st.builds(natives.refusal, PIECES),
        st.builds(natives.call, st.sampled_from(["f", "g"]), FRAGMENTS.filter(bool)),
        st.builds(natives.reasoning, st.sampled_from([None, "blob"])),
    )
    end = st.sampled_from(["completed", "incomplete", "failed"])
    details = {"incomplete_details": {"reason": "x"}, "error": {"code": "x", "message": "y"}}
    return st.builds(
        lambda items, end: natives.events(*items, end=end, **details),
        st.lists(item, max_size=3, unique_by=lambda item: item["id"]),
        end,
    )


def message_events() -> st.SearchStrategy[Objects]:
    def block(kind: str, pieces: list[str]) -> Objects:
        begun: dict[str, Any] = {"type": kind, "text": ""}
        deltas: Objects = [{"type": "text_delta", "text": piece} for piece in pieces]
        if kind == "thinking":
            begun = {"type": kind, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
            deltas.append({"type": "signature_delta", "signature": "s"})
        elif kind == "redacted_thinking":
            begun, deltas = {"type": kind, "data": "d"}, []
        elif kind != "text":
            begun = {"type": "tool_use", "id": f"toolu_{len(pieces)}", "name": kind, "input": {}}
            whole = orjson.dumps({"input": "".join(pieces)}).decode()
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in whole]
        return [
            {"type": "content_block_start", "content_block": begun},
            *({"type": "content_block_delta", "delta": delta} for delta in deltas),
            {"type": "content_block_stop"},
        ]

    def stream(blocks: list[Objects], reason: str) -> Objects:
        usage = {"input_tokens": 3, "cache_creation_input_tokens": 4, "output_tokens": 1}
        return [
            {"type": "message_start", "message": {"model": "theirs", "usage": usage}},
            {"type": "ping"},
            *({**event, "index": index} for index, one in enumerate(blocks) for event in one),
            {
                "type": "message_delta",
                "delta": {"stop_reason": reason},
                "usage": {"output_tokens": 9},
            },
            {"type": "message_stop"},
        ]

    kinds = st.sampled_from(["text", "thinking", "redacted_thinking", "f", "c", "give_answer"])
    blocks = st.builds(block, kinds, st.lists(PIECES, max_size=3))
    reasons = st.sampled_from(["end_turn", "max_tokens", "tool_use", "refusal", "pause_turn"])
    return st.builds(stream, st.lists(blocks, max_size=4), reasons)


STREAMS: dict[str, st.SearchStrategy[Objects]] = {
    "chat": chat_chunks(),
    "forced": chat_chunks(),
    "ollama": ollama_lines(),
    "native": native_events(),
    "told natively": native_events(),
    "told of ollama": ollama_lines(),
    "passthrough": chat_chunks(),
    "messages": message_events(),
    "messages passed": message_events(),
}

CUTS = st.lists(st.floats(0, 1), max_size=12)
every_dialect = pytest.mark.parametrize("name", DIALECTS)


def reads(data: bytes, cuts: list[float]) -> list[bytes]:
    """``data`` in pieces: cut at these places, or at every byte where there are none."""
    if not cuts:
        return in_bytes(data)
    edges = sorted({0, len(data), *(int(cut * len(data)) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


def outcome(decoder: StreamDecoder, data: bytes | list[bytes]) -> tuple[list[bytes], Any, Any]:
    """What comes out of a reader: frames, error, usage. Whatever is raised fails the test."""
    frames = read_all(decoder, data)
    assert decoder.ended == (decoder.error is None)
    error = decoder.error
    assert error is None or isinstance(error, UpstreamError)
    if error is not None:
        assert error.message
        frames += decoder.fail(error)
    assert decoder.ended
    assert decoder.fail(BROKEN) == decoder.feed(b"data: {}\n\n") == decoder.salvage() == []
    return [frame.encode() for frame in frames], error and str(error), decoder.usage


def check(dialect: Dialect, data: bytes, cuts: list[float]) -> str:
    """Read ``data`` in one piece and in many; the status of the answer."""
    whole = outcome(dialect.decoder(), data)
    assert outcome(dialect.decoder(), reads(data, cuts)) == whole
    frames, error, _ = whole
    assert frames
    if dialect.passes:
        return "failed" if error else "completed"
    if not frames[0].startswith(b"event: "):
        assert all(frame.startswith(b"data: ") and frame.count(b"\n") == 2 for frame in frames)
        return "failed" if error else "completed"
    events = parse_sse(b"".join(frames))
    if dialect.ordered:
        return str(check_order(events)["status"])
    kinds = [event["type"] for event in events]
    ends = [kind for kind in kinds if kind in TERMINAL]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert ends == kinds[-1:]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return str(events[-1]["response"]["status"])


@every_dialect
@given(st.data(), CUTS)
@FUZZ
def test_any_reads_give_the_same_frames(name: str, data: st.DataObject, cuts: list[float]) -> None:
    dialect = DIALECTS[name]
    check(dialect, dialect.encode(data.draw(STREAMS[name])), cuts)


def may_end(name: str, stream: bytes) -> bool:
    """Whether an answer cut off here may still be whole."""
    if name in ("ollama", "told of ollama"):
        return b'"done":true' in stream and stream.endswith(b"}")
    if name.startswith("messages"):
        return b'"stop_reason":"' in stream
    return name not in ("native", "told natively") and any(
        b'"finish_reason":"' in event for event in stream.split(b"\n\n")[:-1]
    )


@every_dialect
@given(st.data(), st.floats(0, 1, exclude_max=True), CUTS)
@MORE
def test_an_answer_cut_off_anywhere_has_failed(
    name: str, data: st.DataObject, end: float, cuts: list[float]
) -> None:
    dialect = DIALECTS[name]
    whole = dialect.encode(data.draw(STREAMS[name]))
    stream = whole[: int(end * len(whole))]
    status = check(dialect, stream, cuts)
    assert status == "failed" or may_end(name, stream)


DEBRIS = [b"\n\n", b"\r", b"data: ", b"null", b'"', b"}"]
MUTATION = st.tuples(
    st.floats(0, 1), st.integers(0, 12), st.one_of(st.binary(max_size=6), st.sampled_from(DEBRIS))
)


@every_dialect
@given(st.data(), st.lists(MUTATION, min_size=1, max_size=4), CUTS)
@MORE
def test_damaged_bytes(
    name: str, data: st.DataObject, mutations: list[tuple[float, int, bytes]], cuts: list[float]
) -> None:
    dialect = DIALECTS[name]
    stream = dialect.encode(data.draw(STREAMS[name]))
    for place, size, instead in mutations:
        at = int(place * len(stream))
        stream = stream[:at] + instead + stream[at + size :]
    check(dialect, stream, cuts)


@every_dialect
@given(st.binary(max_size=200), CUTS)
@FUZZ
def test_random_bytes(name: str, data: bytes, cuts: list[float]) -> None:
    check(DIALECTS[name], data, cuts)
    check(DIALECTS[name], b"data: " + data + b"\n\n", cuts)


def deep(levels: int, opening: str = '{"a":', closing: str = "}") -> Any:
    return orjson.loads(opening * levels + "1" + closing * levels)


ODD: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 2**63, 2**64 - 1, 1e300, -0.5, "", "x", "\n"]),
    st.sampled_from([[], {}, [[]], [None], [1], ["x"], {"a": 1}, [{}], "[DONE]"]),
    st.sampled_from(["response.created", "response.failed", "message", "function_call"]),
    st.sampled_from([deep(150), deep(150, "[", "]"), {"role": "x", "type": "message"}]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside this one, down to where no dialect has fields."""
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for key, child in inner:
        yield (*path, key)
        if len(path) < 10:
            yield from places(child, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], instead: Any) -> Any:
    value = copy.deepcopy(value)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    if instead is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = instead
    return value


def damaged(data: st.DataObject, value: Any) -> Any:
    """``value`` with one to three of its inner values replaced, or left out."""
    for _ in range(data.draw(st.integers(1, 3))):
        paths = list(places(value))
        if paths:
            path = paths[data.draw(st.integers(0, len(paths) - 1))]
            value = replaced(value, path, data.draw(st.one_of(ODD, ODD, st.just(...))))
    return value


@every_dialect
@given(st.data(), CUTS)
@MORE
def test_wrong_types_in_any_field(name: str, data: st.DataObject, cuts: list[float]) -> None:
    dialect = DIALECTS[name]
    stream = [o for o in damaged(data, data.draw(STREAMS[name])) if isinstance(o, dict)]
    check(dialect, dialect.encode(stream), cuts or [0.5])


@every_dialect
@given(st.data())
@MORE
def test_wrong_types_in_a_whole_answer(name: str, data: st.DataObject) -> None:
    dialect = DIALECTS[name]
    body = orjson.dumps(damaged(data, dialect.whole))
    decoder = dialect.decoder()
    with contextlib.suppress(UpstreamError):
        assert isinstance(orjson.loads(decoder.whole(body)), dict)
    if not isinstance(
        decoder, ChatPassthrough | ChatEncoder | MessagesPassthrough | ResponsesDecoder
    ):
        streaming = dialect.decoder()
        try:
            frames = streaming.whole_as_stream(body)
        except UpstreamError as error:
            frames = streaming.fail(error)
        check_order(parse_sse(b"".join(frame.encode() for frame in frames)))


@every_dialect
@pytest.mark.parametrize("levels", [190, 199, 201, 260, 1000, 5000, 100_000])
@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_any_depth(name: str, levels: int, opening: str) -> None:
    dialect = DIALECTS[name]
    nested = opening.encode() * levels + b"1" + (b"]" if opening == "[" else b"}") * levels
    for stream in (
        nested + b"\n",
        b"data: " + nested + b"\n\n",
        b'data: {"type":"response.x","choices":[{"delta":{"tool_calls":[{"function":{"name":"f",'
        b'"arguments":' + nested + b"}}]}}]}\n\n",
        b'data: {"type":"response.created","response":{"tools":' + nested + b"}}\n\n",
        b'data: {"type":"response.output_item.added","item":' + nested + b"}\n\n",
        b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":' + nested + b"}}]}}\n",
    ):
        check(dialect, stream, [0.3, 0.7])


RECORDED = {
    "chat": traces("ChatCompletions/*/response.txt"),
    "passthrough": traces("ChatCompletions/*/response.txt"),
    "native": traces("Responses/re*/response.txt"),
    "told natively": traces("Responses/re*/response.txt"),
}


@pytest.mark.parametrize(
    ("name", "recording"), [(name, r) for name, found in RECORDED.items() for r in found]
)
def test_recorded_streams_in_any_reads(name: str, recording: str) -> None:
    stream = trace(recording)
    dialect = DIALECTS[name]
    assert check(dialect, stream, []) in ("completed", "incomplete")
    step = max(1, len(stream) // 60)
    for end in range(0, len(stream) - 40, step):
        assert check(dialect, stream[:end], [0.4]) == "failed" or may_end(name, stream[:end])
