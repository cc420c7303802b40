"""What is the same in every translated answer, driven by chat streams: how answers end, fail,
are counted, and pass from one endpoint to another.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.chat.decode_stream import ChatDecoder, logprob_entries
from router.errors import UpstreamFailure
from router.response.machine import MachineOptions
from tests.support.chat import USAGE, chat, chat_chunk, completion, decoder, text, tool
from tests.support.order import check_order
from tests.support.reading import (
    BROKEN,
    checked,
    decoded,
    events_of,
    in_bytes,
    make_builder,
    read_all,
    read_to_the_end,
    said,
    sse,
)
from tests.support.schema import faults_of_event

FINISHES = [
    ("stop", "completed", None),
    ("tool_calls", "completed", None),
    ("function_call", "completed", None),
    ("length", "incomplete", "max_output_tokens"),
    ("max_tokens", "incomplete", "max_output_tokens"),
    ("content_filter", "incomplete", "content_filter"),
    ("something new", "completed", None),
    (["odd"], "completed", None),
]


@pytest.mark.parametrize(("finish", "status", "reason"), FINISHES)
def test_finish_reasons(finish: Any, status: str, reason: str | None) -> None:
    final = checked(decoder(), chat(text("A"), finish=finish))
    assert final["status"] == status
    assert final["incomplete_details"] == ({"reason": reason} if reason else None)
    assert final["output"][0]["status"] == status
    whole = orjson.loads(decoder().whole(completion(text("A"), finish)))
    assert (whole["status"], whole["incomplete_details"]) == (status, final["incomplete_details"])


@pytest.mark.parametrize("finish", ["error", "abort"])
def test_an_endpoint_that_gives_up_has_failed(finish: str) -> None:
    subject = decoder()
    final = check_order(decoded(read_to_the_end(subject, chat(text("A"), finish=finish))))
    assert final["status"] == "failed"
    assert subject.error is not None
    assert finish in subject.error.message


def test_the_end_marker_alone_ends_an_answer() -> None:
    assert checked(decoder(), chat(text("A"), finish=None))["status"] == "completed"


def test_the_finish_reason_alone_ends_an_answer_with_the_body() -> None:
    subject = decoder()
    frames = subject.feed(chat(text("A"), done=False))
    assert not subject.ended
    frames += subject.finish()
    assert check_order(decoded(frames))["status"] == "completed"
    assert subject.finish() == []


def test_an_answer_that_is_cut_off_has_failed() -> None:
    for stream in (b"", chat(text("A"), finish=None, done=False)):
        subject = decoder()
        final = check_order(decoded(read_to_the_end(subject, stream)))
        assert subject.error is not None
        assert "ended before the answer did" in subject.error.message
        assert final["status"] == "failed"
        assert final["error"] == {"code": "server_error", "message": BROKEN.message}


def test_nothing_follows_the_end_marker() -> None:
    stream = chat(text("A")) + chat(text("B")) + b"garbage\n\n"
    assert said(checked(decoder(), stream)) == [("text", "A")]
    assert said(checked(decoder(), in_bytes(stream))) == [("text", "A")]


def usage_chunk(usage: Any, *choices: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": list(choices), "usage": usage}


def test_usage_has_its_details() -> None:
    stream = sse(chat_chunk(content="A"), chat_chunk("stop"), usage_chunk(USAGE), b"[DONE]")
    subject = decoder()
    final = checked(subject, stream)
    assert final["usage"] == subject.usage
    assert final["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 13,
    }


def test_cumulative_usage_is_not_added_up() -> None:
    chunks = [
        {**chat_chunk(content="A"), "usage": {"prompt_tokens": 9, "completion_tokens": n}}
        for n in (1, 2, 3)
    ]
    odd = [{**chat_chunk(content="A"), "usage": usage} for usage in (None, {}, "x", {"a": 1})]
    final = checked(decoder(), sse(*chunks, *odd, chat_chunk("stop"), b"[DONE]"))
    assert (final["usage"]["output_tokens"], final["usage"]["total_tokens"]) == (3, 12)


def test_zero_is_a_value() -> None:
    zero = usage_chunk({"prompt_tokens": 0, "completion_tokens": 0})
    final = checked(decoder(), sse(chat_chunk("stop", content="A"), zero, b"[DONE]"))
    assert final["usage"]["total_tokens"] == 0
    assert "estimated" not in final["usage"]


def test_without_usage_there_is_an_estimate() -> None:
    final = checked(decoder(prompt_tokens=lambda: 2), chat(text("1234")))
    assert final["usage"]["estimated"] is True
    assert (final["usage"]["input_tokens"], final["usage"]["output_tokens"]) == (2, 1)


TOKEN = {
    "token": "ö",
    "logprob": -0.25,
    "bytes": [195, 182],
    "top_logprobs": [{"token": "ö", "logprob": -0.25}, {"token": "o", "logprob": -2}],
}


def test_log_probabilities() -> None:
    chunk = chat_chunk(content="ö", logprobs={"content": [TOKEN]})
    stream = sse(chunk, chat_chunk(content="x"), chat_chunk("stop"), b"[DONE]")
    final = checked(decoder(logprobs=True), stream)
    (entry,) = final["output"][0]["content"][0]["logprobs"]
    assert entry == {
        "token": "ö",
        "logprob": -0.25,
        "bytes": [195, 182],
        "top_logprobs": [
            {"token": "ö", "logprob": -0.25, "bytes": [195, 182]},
            {"token": "o", "logprob": -2, "bytes": [111]},
        ],
    }
    assert checked(decoder(), stream)["output"][0]["content"][0]["logprobs"] == []


def test_log_probabilities_of_a_thought_are_left_out() -> None:
    tokens = ["<think>", "hm", "</think>", "\n", "A", "B"]
    chunks = [
        chat_chunk(content=token, logprobs={"content": [{"token": token, "logprob": -1}]})
        for token in tokens
    ]
    stream = sse(*chunks, b"[DONE]")
    final = checked(decoder(logprobs=True), stream)
    assert said(final) == [("reasoning", "hm"), ("text", "AB")]
    assert [e["token"] for e in final["output"][1]["content"][0]["logprobs"]] == ["A", "B"]
    body = completion(text("".join(tokens)))
    whole = orjson.loads(body)
    whole["choices"][0]["logprobs"] = {"content": [{"token": t, "logprob": -1} for t in tokens]}
    answer = orjson.loads(decoder(logprobs=True).whole(orjson.dumps(whole)))
    assert [e["token"] for e in answer["output"][1]["content"][0]["logprobs"]] == ["A", "B"]


def test_log_probabilities_of_what_was_held_back_are_kept() -> None:
    tokens = [" ", "<", "b", ">"]
    chunks = [
        chat_chunk(content=token, logprobs={"content": [{"token": token, "logprob": -1}]})
        for token in tokens
    ]
    final = checked(decoder(logprobs=True), sse(*chunks, b"[DONE]"))
    assert [e["token"] for e in final["output"][0]["content"][0]["logprobs"]] == tokens
    held = checked(decoder(logprobs=True), sse(*chunks[:2], chat_chunk("stop", refusal="no")))
    assert [e["token"] for e in held["output"][0]["content"][0]["logprobs"]] == tokens[:2]


@pytest.mark.parametrize(
    "content",
    [None, 5, {}, [1], [{}], [{"token": 5}], [{"logprob": 1}]],
)
def test_log_probabilities_that_are_none(content: Any) -> None:
    assert logprob_entries(content) == []


def test_odd_log_probabilities() -> None:
    odd = {"token": "a", "logprob": "x", "bytes": ["x"], "top_logprobs": [5, {"token": None}]}
    expected = {"token": "a", "logprob": 0.0, "bytes": [97], "top_logprobs": []}
    assert logprob_entries([odd, 7]) == [expected]


def test_custom_tools() -> None:
    subject = decoder(custom_tools=frozenset({"c"}))
    final = checked(
        subject,
        chat(tool('{"input":', name="c", id="a"), tool('"x\\n"}'), tool("{}", name="f", index=1)),
    )
    assert [item["type"] for item in final["output"]] == ["custom_tool_call", "function_call"]
    assert said(final) == [("c", "x\n"), ("f", "{}")]
    native_form = {"tool_calls": [{"index": 0, "id": "a", "custom": {"name": "c", "input": "x"}}]}
    assert said(checked(decoder(custom_tools=frozenset({"c"})), chat(native_form))) == [("c", "x")]


def forced(*pieces: str, finish: str = "stop") -> ChatDecoder:
    subject = decoder(forced_call=True)
    frames = subject.feed(chat(*map(text, pieces), finish=finish))
    if subject.ended:
        check_order(decoded(frames))
    return subject


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"name":"f","arguments":{"a":1}}', ("f", '{"a":1}')),
        ('<think>hm</think> {"name":"f","arguments":{}}', ("f", "{}")),
        ('{"name":"f","arguments":null}', ("f", "{}")),
        ('{"name":"f"}', ("f", "{}")),
        ('{"name":"f","arguments":"{\\"a\\":1}"}', ("f", '{"a":1}')),
    ],
)
def test_a_forced_call(answer: str, expected: tuple[str, str]) -> None:
    for pieces in ([answer], list(answer)):
        subject = forced(*pieces)
        assert subject.final is not None
        assert said(subject.final)[-1] == expected


def test_a_forced_call_that_was_made_anyway() -> None:
    final = checked(decoder(forced_call=True), chat(text("Let me"), tool("{}", name="f")))
    assert said(final) == [("f", "{}")]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Sunny.",
        "[]",
        '"f"',
        '{"name":5,"arguments":{}}',
        '{"name":"","arguments":{}}',
        '{"arguments":{}}',
        '{"name":"f","arguments":[1]}',
        '{"name":"f","arg',
        "<th",
        '{"name":"f","arguments":' + '{"a":' * 300 + "1" + "}" * 301,
    ],
)
def test_a_forced_call_that_is_none(answer: str) -> None:
    subject = forced(answer)
    assert not subject.ended
    assert isinstance(subject.error, UpstreamFailure)


def test_a_forced_call_that_was_cut() -> None:
    subject = forced('{"name":"f","arguments":{"a":', finish="length")
    assert subject.final is not None
    assert (subject.final["status"], subject.final["output"]) == ("incomplete", [])
    assert said(forced('{"name":"f","arguments":{}}', finish="length").final or {}) == [("f", "{}")]


def test_failing_before_anything_was_said() -> None:
    subject = decoder()
    events = decoded(subject.fail(BROKEN))
    assert check_order(events)["output"] == []
    assert subject.ended


def test_nothing_follows_an_answer_that_ended() -> None:
    subject = decoder()
    subject.feed(chat(text("A")))
    assert (subject.fail(BROKEN), subject.finish(), subject.salvage()) == ([], [], [])


def test_salvage() -> None:
    subject = decoder()
    frames = subject.feed(chat(text("A"), finish=None, done=False))
    assert subject.salvage() == []
    assert not subject.ended
    frames += subject.feed(sse(chat_chunk("length")))
    frames += subject.salvage()
    assert check_order(decoded(frames))["status"] == "incomplete"
    assert subject.salvage() == []


def test_salvage_of_what_cannot_be_completed() -> None:
    subject = decoder()
    subject.feed(chat(tool("{}"), done=False))
    assert subject.salvage() == []
    assert isinstance(subject.error, UpstreamFailure)
    assert subject.salvage() == []


@pytest.mark.parametrize("delivered", [False, True])
@pytest.mark.parametrize(
    "first", [b"", chat({"role": "assistant"}, tool("{"), finish=None, done=False)]
)
def test_another_endpoint_takes_over(first: bytes, delivered: bool) -> None:
    builder = make_builder()
    shown = builder.open() if delivered else []
    builder.delivered = delivered
    failing = ChatDecoder(builder)
    lost = failing.feed(first)
    assert not failing.has_output
    if delivered:
        assert lost == []
    builder.rewind()
    frames = [*shown, *read_all(ChatDecoder(builder), chat(text("A")))]
    final = check_order(decoded(frames))
    assert said(final) == [("text", "A")]


def test_another_endpoint_takes_over_from_a_broken_whole_answer() -> None:
    builder = make_builder()
    shown = builder.open()
    builder.delivered = True
    body = completion({"content": "A", "tool_calls": [{"function": {"arguments": "{}"}}]})
    with pytest.raises(UpstreamFailure):
        ChatDecoder(builder).whole_as_stream(body)
    builder.rewind()
    final = check_order(decoded([*shown, *read_all(ChatDecoder(builder), chat(text("B")))]))
    assert said(final) == [("text", "B")]


def test_every_event_fits_the_published_schema() -> None:
    chunks = [
        chat_chunk(reasoning="hm"),
        chat_chunk(content="A", logprobs={"content": [TOKEN]}),
        chat_chunk(refusal="no"),
        chat_chunk(**tool('{"a":1}', name="f", id="a")),
        chat_chunk(**tool('{"input":"x"}', name="c", id="b", index=1)),
    ]
    tools = [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}]
    for finish in ("stop", "length"):
        options = MachineOptions(custom_tools=frozenset({"c"}), logprobs=True)
        subject = ChatDecoder(make_builder(tools=tools), options)
        events = events_of(subject, sse(*chunks, chat_chunk(finish), b"[DONE]"))
        assert len({event["type"] for event in events}) > 15
        assert [fault for event in events for fault in faults_of_event(event)] == []
    broken = ChatDecoder(make_builder())
    events = decoded(read_to_the_end(broken, sse(*chunks[:2])))
    assert [fault for event in events for fault in faults_of_event(event)] == []
