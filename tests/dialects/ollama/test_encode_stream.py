"""Responses told as Ollama tells them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.api_format import encode_line
from router.dialects.ndjson import NDJSONDecoder
from router.dialects.ollama.decode_stream import OllamaDecoder
from router.dialects.ollama.encode_stream import OllamaEncoder
from router.dialects.ollama.schema import OLLAMA, image_url, timestamp
from router.errors import InvalidRequest, UpstreamError, UpstreamFailure, UpstreamRateLimited
from router.response.frame import Frame
from router.response.machine import MachineOptions, ResponseMachine
from tests.support.reading import BROKEN, FUZZ, make_builder

STAMP = "2026-01-02T03:04:05.000000006Z"
BASE = {"model": "m", "created_at": STAMP}


class Clock:
    """Each look at it is 30 ns later; 10 were waited for."""

    id = "req_1"

    def __init__(self) -> None:
        self.now = 0

    def stamp(self) -> str:
        return STAMP

    def since(self) -> int:
        self.now += 30
        return self.now

    def waited(self) -> int:
        return 10

    def replaced(self) -> str | None:
        return None


class Machine(ResponseMachine):
    """Says whatever a test has it say."""


def machine(**options: Any) -> Machine:
    return Machine(make_builder(), MachineOptions(**options))


def told(frames: list[Frame], *, chat: bool = True, sizes: tuple[int, ...] = ()) -> list[Any]:
    """The lines for these events, in batches of these sizes and the rest in one."""
    encoder = OllamaEncoder("m", Clock(), chat=chat)
    lines: list[bytes] = []
    for size in (*sizes, len(frames)):
        batch, frames = frames[:size], frames[size:]
        lines += map(encode_line, encoder.frames(batch))
    data = b"".join(lines)
    assert data.count(b"\n") == len(lines)
    return [orjson.loads(one) for one in NDJSONDecoder().decode(data)]


def line(**message: Any) -> dict[str, Any]:
    return {**BASE, "message": {"role": "assistant", "content": "", **message}, "done": False}


def last(reason: str = "stop", **fields: Any) -> dict[str, Any]:
    said = {"message": {"role": "assistant", "content": ""}}
    return {**BASE, **said, "done": True, "done_reason": reason, **fields}


COUNTS: dict[str, Any] = {"prompt_eval_count": 7, "eval_count": 4}


def finish(made: Machine, reason: str = "stop") -> list[Frame]:
    made.usage = {"input_tokens": 7, "output_tokens": 4}
    made.finish_reason = reason
    made.complete()
    return made.take()


def test_a_message() -> None:
    made = machine()
    made.text("Hello")
    made.text(", you")
    assert told(finish(made)) == [
        line(content="Hello"),
        line(content=", you"),
        # Of 60 ns the first 30 were until the first word, 10 of them in a queue.
        last(total_duration=60, load_duration=10, prompt_eval_duration=20, eval_duration=30,
             **COUNTS),
    ]  # fmt: skip


def test_a_text() -> None:
    made = machine()
    made.reasoning("Hm.")
    made.text("Hello")
    lines = told(finish(made), chat=False)
    assert lines[:2] == [
        {**BASE, "response": "", "thinking": "Hm.", "done": False},
        {**BASE, "response": "Hello", "done": False},
    ]
    assert lines[2]["response"] == ""
    assert lines[2]["done_reason"] == "stop"


def test_thinking_and_calls() -> None:
    made = machine()
    made.reasoning("Hm")
    made.reasoning(".")
    made.call(0, "a", "add", '{"b":')
    made.call(0, None, None, "1}")
    made.call(1, "c", "now", "{}")
    lines = told(finish(made, "tool_calls"))
    assert lines[:-1] == [
        line(thinking="Hm"),
        line(thinking="."),
        line(tool_calls=[
            {"id": "a", "function": {"index": 0, "name": "add", "arguments": {"b": 1}}}
        ]),
        line(tool_calls=[
            {"id": "c", "function": {"index": 1, "name": "now", "arguments": {}}}
        ]),
    ]  # fmt: skip
    assert lines[-1]["done_reason"] == "stop"


def test_what_is_no_object_is_told_as_input() -> None:
    made = machine()
    made.call(0, "a", "add", "[1]")
    [called, _] = told(finish(made))
    [call] = called["message"]["tool_calls"]
    assert call["function"]["arguments"] == {"input": "[1]"}


@pytest.mark.parametrize(("reason", "shown"), [("length", "length"), ("content_filter",) * 2])
def test_an_answer_that_was_cut(reason: str, shown: str) -> None:
    made = machine()
    made.text("Hel")
    assert told(finish(made, reason))[-1]["done_reason"] == shown


def test_a_call_that_was_cut_is_not_told() -> None:
    made = machine()
    made.call(0, "a", "rm", '{"path": "/tm')
    frames = finish(made, "length")
    assert made.final is not None
    assert [item["type"] for item in made.final["output"]] == ["function_call"]
    assert [one["done"] for one in told(frames)] == [True]
    whole = whole_of(made.final)
    assert "tool_calls" not in whole["message"]


def test_a_refusal_is_a_text() -> None:
    made = machine()
    made.refusal("I will not.")
    assert told(finish(made))[0] == line(content="I will not.")


def test_parts_of_a_summary_stand_apart() -> None:
    def event(kind: str, index: int, **fields: Any) -> Frame:
        return Frame.of({"type": f"response.reasoning_summary_{kind}", "summary_index": index,
                         **fields})  # fmt: skip

    frames = [
        event("part.added", 0), event("text.delta", 0, delta="One."),
        event("part.added", 1), event("text.delta", 1, delta="Two."),
    ]  # fmt: skip
    thinking = "".join(one["message"]["thinking"] for one in told(frames))
    assert thinking == "One.\n\nTwo."


def test_log_probabilities() -> None:
    entry = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105],
             "top_logprobs": [{"token": "Ho", "logprob": -2.0, "bytes": None}]}  # fmt: skip
    made = machine(logprobs=True)
    made.text("Hi", [entry])
    shown = [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105],
              "top_logprobs": [{"token": "Ho", "logprob": -2.0}]}]  # fmt: skip
    frames = finish(made)
    assert told(frames)[0] == {**line(content="Hi"), "logprobs": shown}
    assert made.final is not None
    assert whole_of(made.final)["logprobs"] == shown


def test_what_came_only_in_the_end_is_told_there() -> None:
    made = machine()
    made.reasoning("Hm.")
    made.text("Hello")
    made.call(0, "a", "add", "{}")
    frames = [f for f in finish(made) if "delta" not in f.type and "item" not in f.type]
    lines = told(frames)
    assert [one["message"] for one in lines[:3]] == [
        line(thinking="Hm.")["message"],
        line(content="Hello")["message"],
        line(tool_calls=[{"id": "a", "function": {"index": 0, "name": "add", "arguments": {}}}])[
            "message"
        ],
    ]
    assert lines[3]["done"]


def test_a_stream_that_fails() -> None:
    made = machine()
    made.text("Hel")
    lines = told(made.fail(UpstreamFailure("The endpoint broke.")))
    assert lines == [line(content="Hel"), {"error": "The endpoint broke."}]


def test_nothing_follows_the_end() -> None:
    made = machine()
    made.text("Hello")
    frames = finish(made)
    assert len(told([*frames, *frames])) == 2


def whole_of(response: dict[str, Any], *, chat: bool = True) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(
        OllamaEncoder("m", Clock(), chat=chat).whole(orjson.dumps(response))
    )
    return value


def test_an_answer_in_one_piece() -> None:
    made = machine()
    made.reasoning("Hm.")
    made.text("Hello")
    made.call(0, "a", "add", '{"b":1}')
    finish(made)
    assert made.final is not None
    message = {
        "role": "assistant", "content": "Hello", "thinking": "Hm.",
        "tool_calls": [{"id": "a", "function": {"index": 0, "name": "add", "arguments": {"b": 1}}}],
    }  # fmt: skip
    times = {"total_duration": 30, "load_duration": 10, "eval_duration": 20}
    expected = {**BASE, "message": message, "done": True, "done_reason": "stop", **times, **COUNTS}
    assert whole_of(made.final) == expected
    del expected["message"]
    expected |= {"response": "Hello", "thinking": "Hm.", "tool_calls": message["tool_calls"]}
    assert whole_of(made.final, chat=False) == expected


@pytest.mark.parametrize(
    ("code", "error"),
    [("server_error", UpstreamFailure), ("rate_limit_exceeded", UpstreamRateLimited)],
)
def test_a_failed_answer_in_one_piece(code: str, error: type[UpstreamError]) -> None:
    failed = {"status": "failed", "error": {"code": code, "message": "Broken."}, "output": []}
    with pytest.raises(error, match="Broken"):
        whole_of(failed)


def test_without_counts_there_are_none() -> None:
    response: dict[str, Any] = {"status": "completed", "output": [], "usage": None}
    assert "eval_count" not in whole_of(response)


def test_odd_output_is_no_bug() -> None:
    odd = {"output": [1, {"type": "message", "content": [None, {"text": None}]}, {"type": "x"}]}
    assert whole_of(odd)["message"] == {"role": "assistant", "content": ""}


SPOKEN = st.lists(
    st.one_of(
        st.tuples(st.just("reasoning"), st.text(min_size=1)),
        st.tuples(st.just("text"), st.text(min_size=1)),
        st.tuples(st.just("call"), st.dictionaries(st.text(), st.integers(0, 9), max_size=3)),
    ),
    max_size=12,
)


@FUZZ
@given(spoken=SPOKEN, sizes=st.lists(st.integers(0, 5), max_size=9), chat=st.booleans())
def test_what_is_told_is_what_was_said(
    spoken: list[tuple[str, Any]], sizes: list[int], chat: bool
) -> None:
    made = machine()
    for number, (kind, value) in enumerate(spoken):
        if kind == "call":
            made.call(number, f"c{number}", f"f{number}", orjson.dumps(value).decode())
        else:
            getattr(made, kind)(value)
    frames = finish(made)
    assert made.final is not None
    *lines, end = told(frames, chat=chat, sizes=tuple(sizes))
    assert [one["done"] for one in lines] == [False] * len(lines)
    assert end["done"] is True
    whole = whole_of(made.final, chat=chat)
    unpack: Callable[[Any], Any] = (lambda one: one["message"]) if chat else (lambda one: one)
    field = "content" if chat else "response"
    assert "".join(unpack(one)[field] for one in lines) == unpack(whole)[field]
    calls = [call for one in lines for call in unpack(one).get("tool_calls", [])]
    assert calls == unpack(whole).get("tool_calls", [])
    assert [call["function"]["arguments"] for call in calls] == [
        value for kind, value in spoken if kind == "call"
    ]
    thinking = "".join(unpack(one).get("thinking", "") for one in lines)
    assert thinking.replace("\n\n", "") == unpack(whole).get("thinking", "").replace("\n\n", "")


@FUZZ
@given(data=st.binary(max_size=400), cuts=st.lists(st.integers(0, 50), max_size=5))
def test_whatever_an_endpoint_sends_lines_come_out(data: bytes, cuts: list[int]) -> None:
    """Ollama's own stream, damaged, read and told again: lines, the last of which ends it."""
    good = b'{"message":{"content":"Hi"}}\n{"done":true,"done_reason":"stop"}\n'
    for bytes_ in (data, good[: len(data)] + data, good):
        decoder = OllamaDecoder(make_builder(), MachineOptions())
        frames = []
        for cut in cuts:
            frames += decoder.feed(bytes_[:cut])
            bytes_ = bytes_[cut:]
        frames += [*decoder.feed(bytes_), *decoder.finish()]
        if decoder.error is not None:
            frames += decoder.fail(BROKEN)
        lines = told(frames)
        assert "error" in lines[-1] or lines[-1]["done"] is True
        assert not any("error" in one or one["done"] for one in lines[:-1])


def test_the_form_of_errors() -> None:
    error = InvalidRequest("Missing required parameter: 'model'.", param="model")
    assert OLLAMA.error(error) == {"error": "Missing required parameter: 'model'."}
    nameless = InvalidRequest("It is wrong.", param="options.top_k")
    assert OLLAMA.error(nameless) == {"error": "It is wrong. (field: options.top_k)"}
    assert OLLAMA.encode(OLLAMA.failed(error)) == orjson.dumps(OLLAMA.error(error)) + b"\n"
    assert OLLAMA.silence == b""


def test_times_have_nanoseconds() -> None:
    shown = timestamp(1_800_000_000_000_000_007)
    assert shown == "2027-01-15T08:00:00.000000007Z"
    assert datetime.fromisoformat(shown[:26] + "+00:00").timestamp() == 1_800_000_000


def test_kinds_of_images() -> None:
    for start, kind in (("R0lGODlh", "gif"), ("UklGRiQA", "webp"), ("AAAA", "png")):
        assert image_url(start, "images[0]") == f"data:image/{kind};base64,{start}"
