"""Chat Completions passed on."""

from __future__ import annotations

import re
from typing import Any

import pytest

from router.dialects.chat.passthrough import ChatPassthrough
from router.errors import UpstreamFailure
from tests.support.chat import USAGE, chat, chat_chunk, completion, text, tool
from tests.support.reading import BROKEN, in_bytes, read_all, sse, trace, traces

DONE = b"data: [DONE]\n\n"
ONLY_USAGE = {"object": "chat.completion.chunk", "choices": [], "usage": USAGE}


def decoder(*, wants_usage: bool = True, model: str = "m") -> ChatPassthrough:
    return ChatPassthrough(model=model, wants_usage=wants_usage)


def passed(subject: ChatPassthrough, data: bytes) -> bytes:
    return b"".join(frame.encode() for frame in read_all(subject, data))


def test_a_stream_passes_byte_by_byte() -> None:
    stream = chat(text("ö"), tool("{}", name="f"), {"refusal": "no"}) + b""
    for data in (stream, stream.replace(b"\n", b"\r\n")):
        subject = decoder()
        assert passed(subject, data) == stream
        assert subject.ended
        assert subject.usage is None
        assert b"".join(f.encode() for f in read_all(decoder(), in_bytes(data))) == stream


def test_what_is_not_the_answer_is_left_out() -> None:
    stream = chat(text("A"))
    noisy = stream.replace(b"data: ", b": hi\nid: 7\nevent: x\ndata:") + chat(text("B"))
    assert passed(decoder(), noisy) == stream
    assert b"".join(f.encode() for f in read_all(decoder(), in_bytes(noisy))) == stream


def test_several_data_lines_go_out_in_one() -> None:
    (first, rest) = (b'data: {"choices":\ndata: [{"index":0}]}\n\n', DONE)
    assert passed(decoder(), first + rest) == b'data: {"choices": [{"index":0}]}\n\n' + rest


@pytest.mark.parametrize("wants", [True, False])
def test_usage_that_nobody_asked_for_is_left_out(wants: bool) -> None:
    before = sse(chat_chunk(content="A"), chat_chunk("stop"))
    subject = decoder(wants_usage=wants)
    usage = sse(ONLY_USAGE) if wants else b""
    assert passed(subject, before + sse(ONLY_USAGE) + DONE) == before + usage + DONE
    assert subject.usage is not None
    assert subject.usage["total_tokens"] == 13
    assert subject.usage["input_tokens_details"]["cached_tokens"] == 5


def test_other_chunks_without_choices_pass() -> None:
    stream = sse({"choices": [], "prompt_filter_results": []}, chat_chunk("stop")) + DONE
    subject = decoder(wants_usage=False)
    subject.feed(sse({"choices": []}))
    assert not subject.has_output
    assert passed(decoder(wants_usage=False), stream) == stream


@pytest.mark.parametrize(
    ("delta", "says"),
    [
        ({"role": "assistant"}, False),
        ({"role": "assistant", "content": "", "refusal": None}, False),
        ({"role": "assistant", "content": "A"}, True),
        ({"reasoning_content": "A"}, True),
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, True),
    ],
    ids=["role", "empty", "text", "reasoning", "call"],
)
def test_output_begins_with_what_is_said(delta: dict[str, Any], says: bool) -> None:
    subject = decoder()
    subject.feed(sse({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
    output_so_far = [subject.has_output]
    subject.feed(sse(chat_chunk("stop")))
    assert [*output_so_far, subject.has_output] == [says, True]


def test_usage_of_every_chunk_is_cumulative() -> None:
    chunks = [
        {**chat_chunk(content="A"), "usage": {"prompt_tokens": 9, "completion_tokens": n}}
        for n in (1, 2)
    ]
    stream = sse(*chunks, {**chat_chunk("stop"), "usage": {}}) + DONE
    subject = decoder(wants_usage=False)
    assert passed(subject, stream) == stream
    assert subject.usage is not None
    assert subject.usage["total_tokens"] == 11


def test_an_answer_that_is_cut_off_has_failed() -> None:
    for stream in (b"", chat(text("A"), finish=None, done=False)):
        subject = decoder()
        assert passed(subject, stream) == stream
        assert isinstance(subject.error, UpstreamFailure)
        ended = [subject.ended]
        (frame,) = subject.fail(subject.error)
        assert frame.encode() == sse(subject.error.envelope())
        assert [*ended, subject.ended] == [False, True]
        assert subject.fail(BROKEN) == []


def test_a_missing_end_marker_is_put_there() -> None:
    stream = chat(text("A"), done=False)
    subject = decoder()
    assert passed(subject, stream) == stream + DONE
    assert subject.ended
    broken = decoder()
    broken.feed(stream)
    assert [frame.encode() for frame in broken.salvage()] == [DONE]
    assert (broken.salvage(), broken.finish(), broken.fail(BROKEN)) == ([], [], [])


def test_every_choice_must_be_finished() -> None:
    def choice(index: int, finish: str | None) -> dict[str, Any]:
        return {"choices": [{"index": index, "delta": {"content": "A"}, "finish_reason": finish}]}

    subject = decoder()
    subject.feed(sse(choice(0, None), choice(1, None), choice(0, "stop")))
    assert subject.salvage() == []
    subject.feed(sse(choice(1, "stop")))
    assert [frame.encode() for frame in subject.salvage()] == [DONE]


ERRORS: dict[str, tuple[bytes, str]] = {
    "an error": (sse({"error": {"message": "on fire", "code": 500}}), "on fire"),
    "an older vLLM": (sse({"object": "error", "message": "on fire"}), "on fire"),
    "not JSON": (b"data: {oops\n\n", "not valid JSON"),
    "not an object": (b"data: 5\n\n", "not a JSON object"),
    "too deep": (b'data: {"a":' + b"[" * 300 + b"]" * 300 + b"}\n\n", "nested too deeply"),
    "choices": (sse({"choices": 5}), "malformed"),
    "too large": (b"data: " + b"x" * (33 * 1024 * 1024), "exceeds"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_broken_stream_fails(case: str) -> None:
    broken, message = ERRORS[case]
    before = chat(text("A"), done=False)
    subject = decoder()
    frames = subject.feed(before + broken + (b"" if case == "too large" else DONE))
    if case != "too large":
        assert b"".join(frame.encode() for frame in frames) == before
    assert isinstance(subject.error, UpstreamFailure)
    assert message in subject.error.message
    assert (subject.feed(DONE), subject.finish(), subject.salvage()) == ([], [], [])


def test_odd_choices_pass() -> None:
    odd = [[1], [{"index": "x"}], [{"index": 0, "delta": 5, "finish_reason": ["stop"]}], {}]
    stream = sse(*({"choices": choices} for choices in odd)) + DONE
    assert passed(decoder(), stream) == stream


def test_a_whole_answer_passes() -> None:
    body = completion(text("A"), usage=USAGE)
    subject = decoder()
    assert subject.whole(body) is body
    assert subject.usage is not None
    assert subject.usage["total_tokens"] == 13
    with pytest.raises(UpstreamFailure, match="single JSON body"):
        decoder().whole_as_stream(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", "not valid JSON"),
        (b'{"choices": {}}', "without choices"),
        (b'{"error": {"message": "on fire"}}', "on fire"),
    ],
)
def test_a_broken_whole_answer(body: bytes, message: str) -> None:
    with pytest.raises(UpstreamFailure, match=message):
        decoder().whole(body)


@pytest.mark.parametrize("name", traces("ChatCompletions/*/response.*"))
def test_recorded_answers_pass(name: str) -> None:
    body = trace(name)
    model = re.findall(rb'"model": ?"([^"]+)"', body)[0].decode()
    if name.endswith(".json"):
        assert decoder(model=model).whole(body) == body
    else:
        # The recording lacks its last blank line: the end of the body is as good.
        assert passed(decoder(model=model), body) == body.rstrip() + b"\n\n"
