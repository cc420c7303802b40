"""Answers of endpoints that speak no Chat Completions, told to clients that do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from router.dialects.chat.encode_stream import ChatEncoder
from router.dialects.chat.replay import answer_of_chat
from router.dialects.ollama.decode_stream import OllamaDecoder
from router.dialects.responses.decode_stream import ResponsesDecoder
from router.errors import UpstreamError, UpstreamFailure, UpstreamRateLimited, UpstreamRejected
from router.response.frame import Frame
from router.response.machine import MachineOptions
from tests.support import native as natives
from tests.support.answers import LOGPROBS, without_ids
from tests.support.reading import BROKEN, NOW, in_bytes, make_builder, native, ollama, read_all
from tests.support.schema import faults

Item = dict[str, Any]


def of_native(*, stream: bool = True, wants_usage: bool = False) -> ChatEncoder:
    decoder = ResponsesDecoder(make_builder(muted=not stream), natives.ACCOUNT, hide=True)
    return ChatEncoder(decoder, wants_usage=wants_usage)


def of_ollama(*, stream: bool = True, wants_usage: bool = False, **options: Any) -> ChatEncoder:
    decoder = OllamaDecoder(make_builder(muted=not stream), MachineOptions(**options))
    return ChatEncoder(decoder, wants_usage=wants_usage)


def chunks(frames: list[Frame]) -> list[Item]:
    """The chunks of a stream that must have ended well, each as OpenAI's client reads it."""
    assert frames[-1].data == b"[DONE]"
    for frame in frames[:-1]:
        if b'"custom"' not in frame.data:  # which its types do not know in a stream
            ChatCompletionChunk.model_validate(frame.json(), strict=True)
    return [frame.json() for frame in frames[:-1]]


def deltas(frames: list[Frame]) -> list[Any]:
    """What each chunk says, and at last why the stream ends."""
    choices = [chunk["choices"][0] for chunk in chunks(frames) if chunk["choices"]]
    return [choice["delta"] or choice["finish_reason"] for choice in choices]


def merged(frames: list[Frame]) -> Item:
    """What the chunks amount to."""
    answer = answer_of_chat([frame.data for frame in frames])
    assert answer is not None
    return answer


def tool(index: int, **fields: Any) -> Item:
    return {"tool_calls": [{"index": index, **fields}]}


def test_a_stream() -> None:
    decoder = of_native(wants_usage=True)
    answer = natives.answer(
        natives.message("Hello, ", "wörld"), natives.call("f", '{"a":1}'), natives.call("g", "{}")
    )
    frames = read_all(decoder, answer)
    assert deltas(frames) == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {"content": "lo, "},
        {"content": "wö"},
        {"content": "rld"},
        tool(0, id="call_f", type="function", function={"name": "f", "arguments": ""}),
        tool(0, function={"arguments": '{"a'}),
        tool(0, function={"arguments": '":1}'}),
        tool(1, id="call_g", type="function", function={"name": "g", "arguments": ""}),
        tool(1, function={"arguments": "{"}),
        tool(1, function={"arguments": "}"}),
        "tool_calls",
    ]
    *others, last = chunks(frames)
    assert {"id", "object", "created", "model"} <= last.keys()
    assert (last["id"], last["created"], last["model"]) == ("chatcmpl-0001", 1_750_000_000, "m")
    assert last["choices"] == []
    assert (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == (5, 3)
    assert all(chunk["usage"] is None for chunk in others)
    assert (decoder.ended, decoder.error, decoder.final) == (True, None, None)
    assert decoder.usage is not None
    assert decoder.usage["total_tokens"] == 8
    assert decoder.output_chars == len("Hello, wörld") + len('{"a":1}{}')
    assert decoder.fail(BROKEN) == decoder.feed(answer) == decoder.finish() == []


def test_the_usage_is_told_to_those_who_ask_only() -> None:
    frames = read_all(of_native(), natives.answer(natives.message("Hi")))
    assert all("usage" not in chunk for chunk in chunks(frames))


def test_of_ollama() -> None:
    decoder = of_ollama(wants_usage=True, custom_tools=frozenset({"c"}))
    calls = [
        {"function": {"name": "f", "arguments": {"a": 1}}, "id": "one"},
        {"function": {"name": "c", "arguments": {"input": "x y"}}, "id": "two"},
    ]
    lines = ({"thinking": "Hm"}, {"thinking": "."}, {"content": "Hi"}, {"tool_calls": calls})
    frames = read_all(decoder, ollama(*lines))
    assert without_ids(merged(frames)["output"])[1:] == [
        {
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
        },
        {
            "type": "function_call",
            "status": "completed",
            "call_id": "one",
            "name": "f",
            "arguments": '{"a":1}',
        },
        {
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "two",
            "name": "c",
            "input": "x y",
        },
    ]
    said = deltas(frames)
    assert said[1:4] == [{"reasoning_content": "Hm"}, {"reasoning_content": "."}, {"content": "Hi"}]
    assert chunks(frames)[0]["created"] == NOW
    assert chunks(frames)[-1]["usage"]["total_tokens"] == 5


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "stop"),
        ({"end": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        (
            {"end": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
        ),
    ],
)
def test_why_it_ends(changes: Item, reason: str) -> None:
    answer = natives.answer(natives.message("Hi"), **changes)
    assert deltas(read_all(of_native(), answer))[-1] == reason
    status = changes.pop("end", "completed")
    body = orjson.dumps(natives.begun(status=status, output=[natives.message("Hi")], **changes))
    whole = orjson.loads(of_native(stream=False).whole(body))
    assert whole["choices"][0]["finish_reason"] == reason


def test_log_probabilities() -> None:
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    item = {**natives.message("Hi you"), "id": "msg_1"}
    kind = "response.output_text.delta"
    events: list[Item] = [
        {"type": "response.created", "response": natives.begun()},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": kind, **at, "delta": "Hi", "logprobs": LOGPROBS[:1]},
        {"type": kind, **at, "delta": " you", "logprobs": LOGPROBS[1:]},
        {"type": "response.completed", "response": natives.begun(output=[item])},
    ]
    frames = read_all(of_native(), native(*events))
    told = [chunk["choices"][0].get("logprobs") for chunk in chunks(frames)]
    assert [entry and entry["content"] for entry in told] == [
        None,
        LOGPROBS[:1],
        LOGPROBS[1:],
        None,
    ]


THOUGHTS = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
}


def thinking(*events: Item) -> list[Item]:
    item = {**THOUGHTS, "summary": []}
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    begun = {"type": "response.created", "response": natives.begun()}
    done = {"type": "response.output_item.done", "output_index": 0, "item": THOUGHTS}
    last = {"type": "response.completed", "response": natives.begun(output=[THOUGHTS])}
    return [begun, added, *events, done, last]


def summary(index: int, piece: str) -> Item:
    kind = "response.reasoning_summary_text.delta"
    at = {"item_id": "rs_1", "output_index": 0, "summary_index": index}
    return {"type": kind, **at, "delta": piece}


def raw(piece: str) -> Item:
    at = {"item_id": "rs_1", "output_index": 0, "content_index": 0}
    return {"type": "response.reasoning_text.delta", **at, "delta": piece}


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([], ["One.", "\n\nTwo."]),
        ([summary(0, "One."), summary(1, "Tw"), summary(1, "o.")], ["One.", "\n\nTw", "o."]),
        ([summary(0, "On")], ["On", "e.", "\n\nTwo."]),
        ([raw("Hm"), summary(0, "One."), raw("m.")], ["Hm", "m."]),
    ],
)
def test_reasoning_is_told_once(events: list[Item], told: list[str]) -> None:
    said = deltas(read_all(of_native(), native(*thinking(*events))))
    assert said[1:-1] == [{"reasoning_content": piece} for piece in told]


def without(kinds: str, events: list[Item]) -> list[Item]:
    return [event for event in events if not event["type"].endswith(kinds)]


EVERYTHING = [
    natives.message("Hello, ", "wörld"),
    natives.refusal("No."),
    natives.call("f", '{"a":1}'),
]


@pytest.mark.parametrize(
    "thin",
    [
        lambda events: events,
        lambda events: without("delta", events),
        lambda events: without("added", without("delta", events)),
        lambda events: [events[0], events[-1]],
        lambda events: events[:1] + [e for e in events if e["type"].endswith(("item.done", "ted"))],
        lambda events: [{k: v for k, v in e.items() if k != "output_index"} for e in events],
    ],
)
def test_some_servers_stream_less(thin: Callable[[list[Item]], list[Item]]) -> None:
    """What comes late is told late; nothing is told twice."""
    frames = read_all(of_native(), native(*thin(natives.events(*EVERYTHING))))
    *messages, call = merged(frames)["output"]
    parts = [part for message in messages for part in message["content"]]
    assert [part.get("text") or part["refusal"] for part in parts] == ["Hello, wörld", "No."]
    assert (call["name"], call["arguments"]) == ("f", '{"a":1}')


def test_silent_reasoning_and_hosted_tools_are_no_output() -> None:
    """Until something has been said another endpoint may take over."""
    decoder = of_native()
    searched = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    events = natives.events(natives.reasoning("blob"), searched, natives.message("Hi"))
    place = next(i for i, event in enumerate(events) if event["type"].endswith("text.delta"))
    told = []
    for start, end in ((0, place), (place, place + 1)):
        decoder.feed(native(*events[start:end], start=start))
        told.append(decoder.has_output)
    assert told == [False, True]
    assert deltas(read_all(of_native(), native(*events)))[1:] == [
        {"content": "H"},
        {"content": "i"},
        "stop",
    ]


@pytest.mark.parametrize("ask", [of_native, of_ollama])
def test_a_stream_that_is_cut_ends_in_an_error(ask: Callable[..., ChatEncoder]) -> None:
    answers = {of_native: natives.answer(natives.message("Hi"), end=None)}
    decoder = ask()
    frames = read_all(decoder, answers.get(ask, ollama({"content": "Hi"}, reason=None)))
    error, ended = decoder.error, decoder.ended
    assert isinstance(error, UpstreamFailure)
    assert all(frame.data != b"[DONE]" for frame in frames)
    [last] = decoder.fail(error)
    assert last.json() == error.envelope()
    assert (ended, decoder.ended) == (False, True)
    assert decoder.fail(BROKEN) == decoder.salvage() == []


def test_an_answer_without_its_end_marker_is_saved() -> None:
    decoder = of_ollama()
    stream = ollama({"content": "Hi"})
    frames = [*decoder.feed(stream[:-1]), *decoder.finish()]
    assert deltas(frames)[1:] == [{"content": "Hi"}, "stop"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", UpstreamFailure),
        ("rate_limit_exceeded", UpstreamRateLimited),
        ("invalid_prompt", UpstreamRejected),
    ],
)
@pytest.mark.parametrize("items", [(), (natives.message("Hi"),)])
def test_an_answer_that_failed_is_an_error(
    items: tuple[Item, ...], code: str, kind: type[UpstreamError]
) -> None:
    error = {"code": code, "message": "It went wrong."}
    decoder = of_native()
    read_all(decoder, natives.answer(*items, end="failed", error=error))
    assert type(decoder.error) is kind
    assert (decoder.error.message, decoder.ended, decoder.failure) == (
        "It went wrong.",
        False,
        None,
    )
    failed = natives.begun(status="failed", output=list(items), error=error)
    with pytest.raises(UpstreamError) as caught:
        of_native(stream=False).whole(orjson.dumps(failed))
    assert type(caught.value) is kind


def test_an_answer_in_one_piece() -> None:
    output = [THOUGHTS, *EVERYTHING, {"id": "ws_1", "type": "web_search_call"}]
    body = orjson.dumps(natives.begun(status="completed", output=output, usage=natives.USAGE))
    decoder = of_native(stream=False)
    whole = orjson.loads(decoder.whole(body))
    ChatCompletion.model_validate(whole, strict=True)
    assert faults("CreateChatCompletionResponse", whole) == []
    message = whole["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == ("Hello, wörld", "No.")
    assert message["reasoning_content"] == "One.\n\nTwo."
    assert whole["id"].startswith("chatcmpl-")
    assert whole["usage"]["total_tokens"] == 8
    assert (decoder.usage or {})["total_tokens"] == 8


def test_an_answer_of_ollamas_in_one_piece_for_a_stream() -> None:
    body = b'{"message":{"content":"Hi"},"done":true,"done_reason":"stop"}'
    frames = of_ollama().whole_as_stream(body)
    assert deltas(frames)[1:] == [{"content": "Hi"}, "stop"]
    with pytest.raises(UpstreamFailure):
        of_native().whole_as_stream(body)
    with pytest.raises(UpstreamFailure):
        of_ollama().whole_as_stream(b'{"error":"no"}')


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "role": "assistant", "content": [5]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]},
        {"type": "function_call", "call_id": "a", "name": 5, "arguments": "{}"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": {}},
    ],
)
def test_malformed_items_are_the_endpoints_fault(item: Item) -> None:
    begun = natives.begun(status="completed", output=[item])
    with pytest.raises(UpstreamFailure, match="malformed"):
        of_native(stream=False).whole(orjson.dumps(begun))
    decoder = of_native()
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    read_all(decoder, native({"type": "response.created", "response": natives.begun()}, done))
    assert isinstance(decoder.error, UpstreamFailure)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_however_it_is_read(size: int) -> None:
    answer = natives.answer(natives.reasoning(), *EVERYTHING)
    whole = [frame.data for frame in read_all(of_native(wants_usage=True), answer)]
    cut = read_all(of_native(wants_usage=True), in_bytes(answer, size))
    assert [frame.data for frame in cut] == whole
