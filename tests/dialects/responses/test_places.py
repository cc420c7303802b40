"""Streams of endpoints that leave out where in the output an event belongs (llama.cpp)."""

from __future__ import annotations

from typing import Any

import httpx2
import openai
import orjson
import pytest

from router.dialects.messages.encode_stream import MessagesEncoder
from tests.support.native import USAGE, answer, call, decoder, events, message, refusal
from tests.support.reading import decoded, events_of, in_bytes, native, read_all

_INDEXES = ("output_index", "content_index", "summary_index", "sequence_number")


def bare(*made: dict[str, Any]) -> bytes:
    """A stream of these events without any index, number or event line."""
    shown = [{k: v for k, v in event.items() if k not in _INDEXES} for event in made]
    return b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in shown)


def llamacpp() -> bytes:
    """What llama.cpp's server sends, reasoning and a call beside the text."""
    thought = {"id": "rs_1", "type": "reasoning", "summary": [], "content": []}
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress"}
    part = {"type": "output_text", "text": ""}
    whole = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    called = {"type": "function_call", "call_id": "fc_1", "name": "f", "arguments": ""}
    done = [
        {**thought, "content": [{"type": "reasoning_text", "text": "Hm"}]},
        {**said, "status": "completed", "content": [whole]},
        {**called, "status": "completed", "arguments": "{}"},
    ]
    opening = {"id": "resp_theirs", "object": "response", "status": "in_progress"}
    final = {**opening, "status": "completed", "output": done, "usage": USAGE}
    return bare(
        {"type": "response.created", "response": opening},
        {"type": "response.in_progress", "response": opening},
        {"type": "response.output_item.added", "item": thought},
        {"type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": "Hm"},
        {"type": "response.output_item.added", "item": {**said, "content": []}},
        {"type": "response.content_part.added", "item_id": "msg_1", "part": part},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Hel"},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "lo"},
        {"type": "response.output_item.added", "item": {**called, "status": "in_progress"}},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}"},
        {"type": "response.output_item.done", "item": done[0]},
        {"type": "response.output_text.done", "item_id": "msg_1", "text": "Hello"},
        {
            "type": "response.content_part.done",
            "item_id": "msg_1",
            "part": part | {"text": "Hello"},
        },
        {"type": "response.output_item.done", "item": done[1]},
        {"type": "response.output_item.done", "item": done[2]},
        {"type": "response.completed", "response": final},
    )


ANSWERS: dict[str, tuple[dict[str, Any], ...]] = {
    "text": (message("Hello"),),
    "two parts": (message("One", "Two"),),
    "refusal": (refusal("No."),),
    "calls": (call("f", "{}"), call("g", '{"b":2}'), message("Done")),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_is_left_out_is_filled_in(case: str) -> None:
    items = ANSWERS[case]
    assert events_of(decoder(), bare(*events(*items))) == events_of(decoder(), answer(*items))


def test_any_cut_gives_the_same_frames() -> None:
    stream = llamacpp()
    expected = [frame.encode() for frame in read_all(decoder(), stream)]
    for size in (1, 7, 100):
        assert [f.encode() for f in read_all(decoder(), in_bytes(stream, size))] == expected


def test_events_of_open_items_go_to_their_own() -> None:
    made = decoded(read_all(decoder(), llamacpp()))
    places = [(event["type"].split(".", 1)[1], event.get("output_index")) for event in made[2:-1]]
    assert [place for _, place in places] == [0, 0, 1, 1, 1, 1, 2, 2, 0, 1, 1, 1, 2]
    assert [event["sequence_number"] for event in made] == list(range(len(made)))


def test_summaries_are_counted() -> None:
    item = {"id": "rs_1", "type": "reasoning", "summary": []}
    inner = [
        {"type": f"response.reasoning_summary_{kind}", "item_id": "rs_1", **more}
        for _ in range(2)
        for kind, more in (("part.added", {"part": {}}), ("text.delta", {"delta": "x"}))
    ]
    made = events(item)
    subject = decoder()
    frames = subject.feed(bare(*made[:3], *inner))
    at = [(event["output_index"], event["summary_index"]) for event in decoded(frames)[3:]]
    assert at == [(0, 0), (0, 0), (0, 1), (0, 1)]


def test_an_index_that_comes_stays() -> None:
    made = events(message("A"))
    for event in made:
        if "output_index" in event:
            event["output_index"] = 3
    assert decoded(read_all(decoder(), native(*made)))[2]["output_index"] == 3


def test_the_official_client_accumulates_the_stream() -> None:
    body = b"".join(frame.encode() for frame in read_all(decoder(), llamacpp()))
    reply = httpx2.Response(200, content=body, headers={"content-type": "text/event-stream"})
    transport = httpx2.MockTransport(lambda _: reply)
    with (
        httpx2.Client(transport=transport) as http,
        openai.OpenAI(api_key="k", base_url="http://router.test/v1", http_client=http) as client,
        client.responses.stream(model="m", input="Hi") as stream,
    ):
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        assert text == "Hello"
        assert stream.get_final_response().output_text == "Hello"


def test_messages_tell_the_text_once() -> None:
    encoder = MessagesEncoder("text", None)
    told = [frame.json() for frame in encoder.frames(read_all(decoder(), llamacpp()))]
    texts = [e["delta"].get("text", "") for e in told if e["type"] == "content_block_delta"]
    assert "".join(texts) == "Hello"
    assert [e["type"] for e in told].count("content_block_start") == 3
