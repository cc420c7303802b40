"""Ollama's answers as events of the Responses API."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.ollama.decode_stream import OllamaDecoder
from router.errors import UpstreamFailure
from router.response.machine import MachineOptions
from tests.support.order import check_order
from tests.support.reading import (
    BROKEN,
    checked,
    decoded,
    in_bytes,
    make_builder,
    ollama,
    read_all,
    read_to_the_end,
    said,
)


def decoder(**options: Any) -> OllamaDecoder:
    return OllamaDecoder(make_builder(), MachineOptions(**options))


def text(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def tool(name: Any, arguments: Any, **more: Any) -> dict[str, Any]:
    """One entry of ``tool_calls``."""
    return {"function": {"name": name, "arguments": arguments}, **more}


def tools(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


# name -> (messages, what the items say)
ANSWERS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]] = {
    "text": ([text("Hel"), text(""), text("lö")], [("text", "Hellö")]),
    "nothing": ([], []),
    "thinking": (
        [{**text(""), "thinking": "h"}, {**text(""), "thinking": "m"}, text("A")],
        [("reasoning", "hm"), ("text", "A")],
    ),
    "think tags": (
        [text("<th"), text("ink>hm</think"), text(">\n"), text("A")],
        [("reasoning", "hm"), ("text", "A")],
    ),
    "a call": ([tools(tool("f", {"a": [1, "ö"]}))], [("f", '{"a":[1,"ö"]}')]),
    "calls in one line": (
        [tools(tool("f", {"a": 1}), tool("g", {}))],
        [("f", '{"a":1}'), ("g", "{}")],
    ),
    "calls in two lines, the index repeats": (
        [
            tools({"function": {"index": 0, "name": "f", "arguments": {"a": 1}}}),
            tools({"function": {"index": 0, "name": "f", "arguments": {"a": 2}}}),
        ],
        [("f", '{"a":1}'), ("f", '{"a":2}')],
    ),
    "arguments as text": ([tools(tool("f", '{"a":1}'))], [("f", '{"a":1}')]),
    "no arguments": ([tools(tool("f", None), tool("g", ""))], [("f", "{}"), ("g", "{}")]),
    "text around calls": (
        [{**text("A"), "tool_calls": [tool("f", {})]}, text("B")],
        [("text", "A"), ("f", "{}"), ("text", "B")],
    ),
    "everything in one line": (
        [{**text("A"), "thinking": "hm", "tool_calls": [tool("f", {})]}],
        [("reasoning", "hm"), ("text", "A"), ("f", "{}")],
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_becomes_items(case: str) -> None:
    messages, expected = ANSWERS[case]
    final = checked(decoder(), ollama(*messages))
    assert said(final) == expected
    assert final["status"] == "completed"
    assert final["usage"]["total_tokens"] == 5


@pytest.mark.parametrize("case", ANSWERS)
def test_any_cut_gives_the_same_frames(case: str) -> None:
    stream = ollama(*ANSWERS[case][0])
    expected = [frame.encode() for frame in read_all(decoder(), stream)]
    for size in (1, 7, 100):
        assert [f.encode() for f in read_all(decoder(), in_bytes(stream, size))] == expected
    for variant in (stream[:-1], stream.replace(b"\n", b"\r\n"), stream.replace(b"\n", b"\n\n")):
        assert [f.encode() for f in read_all(decoder(), variant)] == expected


def test_frames_are_made_as_soon_as_can_be() -> None:
    subject = decoder()
    assert subject.feed(ollama({"role": "assistant", "content": ""}, reason=None)) == []
    output_so_far = [subject.has_output]
    assert len(subject.feed(ollama(text("A"), reason=None))) == 5
    assert [*output_so_far, subject.has_output] == [False, True]
    assert [f.type for f in subject.feed(ollama(text("B")))][-1] == "response.completed"
    assert subject.ended


def test_ids_of_calls_are_the_endpoints_or_our_own() -> None:
    final = checked(decoder(), ollama(tools(tool("f", {}, id="call_x"), tool("g", {}, id=5))))
    first, second = final["output"]
    assert first["call_id"] == "call_x"
    assert second["call_id"].startswith("call_")


@pytest.mark.parametrize(
    ("reason", "status", "details"),
    [
        ("stop", "completed", None),
        (None, "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ({"odd": 1}, "completed", None),
    ],
)
def test_done_reasons(reason: Any, status: str, details: Any) -> None:
    stream = ollama(text("A"), done_reason=reason)
    final = checked(decoder(), stream)
    assert (final["status"], final["incomplete_details"]) == (status, details)
    assert final["output"][0]["status"] == status


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"prompt_eval_count": 9, "eval_count": 4}, (9, 4, None)),
        ({"prompt_eval_count": 0, "eval_count": 0}, (0, 0, None)),
        ({"prompt_eval_count": None, "eval_count": 4}, (0, 4, None)),
        ({"prompt_eval_count": None, "eval_count": None}, (2, 1, True)),
        ({"prompt_eval_count": "9", "eval_count": -1}, (2, 1, True)),
        ({"prompt_eval_count": 2**63, "eval_count": 4.0}, (0, 4, None)),
    ],
)
def test_usage(counts: dict[str, Any], expected: tuple[int, int, bool | None]) -> None:
    final = checked(decoder(prompt_tokens=lambda: 2), ollama(text("1234"), **counts))
    usage = final["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage.get("estimated")) == expected


def test_log_probabilities() -> None:
    line = {"message": text("A"), "logprobs": [{"token": "A", "logprob": -1}], "done": False}
    stream = orjson.dumps(line) + b"\n" + ollama()
    entry = {"token": "A", "logprob": -1, "bytes": [65], "top_logprobs": []}
    final = checked(decoder(logprobs=True), stream)
    assert final["output"][0]["content"][0]["logprobs"] == [entry]
    assert checked(decoder(), stream)["output"][0]["content"][0]["logprobs"] == []


def test_a_forced_call() -> None:
    pieces = ['{"name":"f",', '"arguments":{"a":1}}']
    subject = decoder(forced_call=True)
    assert subject.feed(ollama(*map(text, pieces), reason=None)) == []
    assert not subject.has_output
    frames = [*subject.feed(ollama()), *subject.finish()]
    assert said(check_order(decoded(frames))) == [("f", '{"a":1}')]
    wrong = decoder(forced_call=True)
    wrong.feed(ollama(text("Sunny.")))
    assert wrong.error is not None
    cut = checked(decoder(forced_call=True), ollama(text('{"name":"f"'), reason="length"))
    assert (cut["status"], cut["output"]) == ("incomplete", [])


def whole(message: Any, **more: Any) -> bytes:
    counts = {"prompt_eval_count": 3, "eval_count": 2}
    return orjson.dumps({"message": message, "done": True, "done_reason": "stop", **counts, **more})


def test_a_whole_answer() -> None:
    body = whole({**text("A"), "thinking": "hm", "tool_calls": [tool("f", {"a": 1})]})
    expected = [("reasoning", "hm"), ("text", "A"), ("f", '{"a":1}')]
    subject = OllamaDecoder(make_builder(muted=True))
    final = orjson.loads(subject.whole(body))
    assert said(final) == expected
    assert final["usage"] == subject.usage
    assert said(check_order(decoded(decoder().whole_as_stream(body)))) == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "without a message"),
        (whole("A"), "without a message"),
        (b'{"error": "on fire"}', "on fire"),
        (whole(text("A"), done=False), "not marked as done"),
        (whole(text(""), done_reason="load"), "only did a 'load'"),
    ],
)
def test_a_broken_whole_answer(body: bytes, message: str) -> None:
    with pytest.raises(UpstreamFailure, match=message):
        decoder().whole(body)


ERRORS: dict[str, tuple[bytes, str]] = {
    "an error": (b'{"error":"on fire"}\n', "on fire"),
    "an error object": (b'{"error":{"message":"on fire"}}\n', "on fire"),
    "not JSON": (b"{oops\n", "not valid JSON"),
    "not an object": (b"[1]\n", "not a JSON object"),
    "too deep": (b'{"a":' * 300 + b"1" + b"}" * 300 + b"\n", "nested too deeply"),
    "loaded only": (ollama(reason="load"), "only did a 'load'"),
    "unloaded": (ollama(reason="unload"), "only did a 'unload'"),
    "tool calls": (ollama({"tool_calls": {"a": 1}}), "not a list"),
    "a tool call": (ollama({"tool_calls": ["f"]}), "without a function"),
    "a function": (ollama({"tool_calls": [{"function": None}]}), "without a function"),
    "a name": (ollama(tools(tool(None, {}))), "without a name"),
    "a name that is none": (ollama(tools(tool(["f"], {}))), "without a name"),
}


@pytest.mark.parametrize("case", ERRORS)
@pytest.mark.parametrize("before", [[], [text("A")], [{"thinking": "A"}]])
def test_a_broken_stream_fails(case: str, before: list[dict[str, Any]]) -> None:
    broken, message = ERRORS[case]
    subject = decoder()
    frames = subject.feed(ollama(*before, reason=None) + broken + ollama(text("after")))
    assert isinstance(subject.error, UpstreamFailure)
    assert message in subject.error.message
    assert subject.has_output == bool(before)
    assert (subject.feed(ollama()), subject.finish(), subject.salvage()) == ([], [], [])
    final = check_order(decoded([*frames, *subject.fail(subject.error)]))
    assert final["error"]["message"] == subject.error.message
    assert len(final["output"]) == len(before)


@pytest.mark.parametrize("stream", [b"", ollama(text("A"), reason=None), ollama(text("A"))[:-9]])
def test_an_answer_that_is_cut_off_has_failed(stream: bytes) -> None:
    subject = decoder()
    final = check_order(decoded(read_to_the_end(subject, stream)))
    assert isinstance(subject.error, UpstreamFailure)
    assert final["status"] == "failed"
    assert final["error"]["message"] == BROKEN.message


def test_nothing_follows_the_last_line() -> None:
    stream = ollama(text("A")) + ollama(text("B")) + b"garbage\n"
    assert said(checked(decoder(), stream)) == [("text", "A")]
    assert said(checked(decoder(), in_bytes(stream))) == [("text", "A")]


def test_a_line_too_large_fails() -> None:
    subject = decoder()
    subject.feed(b"x" * (33 * 1024 * 1024))
    assert isinstance(subject.error, UpstreamFailure)
    assert "exceeds" in subject.error.message


@pytest.mark.parametrize("delivered", [False, True])
def test_another_endpoint_takes_over(delivered: bool) -> None:
    builder = make_builder()
    shown = builder.open() if delivered else []
    builder.delivered = delivered
    failing = OllamaDecoder(builder)
    assert failing.feed(b'{"error":"on fire"}\n') == []
    builder.rewind()
    frames = [*shown, *read_all(OllamaDecoder(builder), ollama(text("A")))]
    assert said(check_order(decoded(frames))) == [("text", "A")]
