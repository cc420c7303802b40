"""What an endpoint of Anthropic's API cites, as clients of other APIs are told; and sent back."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.support.fetch import fetch
from tests.support.order import check_order, parse_sse
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import parse_events
from tests.support.upstream import Script, Upstream, streamed, whole

URL = "https://sky.example/sky.pdf"
CITATION = {
    "type": "char_location",
    "cited_text": "The sky is blue.",
    "document_index": 0,
    "document_title": "The sky",
    "start_char_index": 0,
    "end_char_index": 16,
}
FILE = {"type": "input_file", "file_url": URL, "filename": "The sky"}
QUESTION = {"role": "user", "content": [FILE, {"type": "input_text", "text": "Which colour?"}]}
ANNOTATION: dict[str, Any] = {
    "type": "url_citation",
    "url": URL,
    "title": "The sky",
    "start_index": 4,
    "end_index": 8,
}
TEXT = "It: blue"
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def blocks(citation: Any = CITATION) -> list[dict[str, Any]]:
    return [
        {"type": "text", "text": "It: "},
        {"type": "text", "text": "blue", "citations": [citation]},
    ]


def answering(*, stream: bool, citation: Any = CITATION) -> Script:
    base = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    usage = {"input_tokens": 7, "output_tokens": 4}
    if not stream:
        body = {**base, "content": blocks(citation), "stop_reason": "end_turn", "usage": usage}
        return whole(orjson.dumps(body))
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**base, "usage": usage}}]
    for index, block in enumerate(blocks(citation)):
        begun = {"type": "text", "text": ""}
        deltas: list[Any] = [{"type": "text_delta", "text": block["text"]}]
        for cited in block.get("citations", ()):
            deltas.append({"type": "citations_delta", "citation": cited})
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        for delta in deltas:
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
    events.append({"type": "message_stop"})
    frames = (b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events)
    return streamed(*frames, kind="text/event-stream")


def citing(upstream: Upstream) -> dict[str, Any]:
    return endpoint(upstream, "messages", citations=True)


def translating(upstream: Upstream) -> dict[str, Any]:
    fields: dict[str, Any] = {"models": ["n"], "chat_completions": "translated"}
    return endpoint(upstream, "responses", "two", **fields)


async def post(router: Router, path: str, **body: Any) -> Any:
    reply = await fetch(router.http, "POST", router.url + path, json={"model": "m", **body})
    assert reply.status == 200, reply.body
    return reply


async def ask(router: Router, *, stream: bool, input: list[Any]) -> dict[str, Any]:
    """The final response."""
    reply = await post(router, "/v1/responses", input=input, stream=stream, store=False)
    final: dict[str, Any] = check_order(parse_sse(reply.body)) if stream else reply.json
    return final


@STREAM
async def test_responses_are_annotated_and_go_back(*, stream: bool) -> None:
    async with (
        Upstream(default=answering(stream=stream)) as upstream,
        routing(citing(upstream)) as router,
    ):
        output = (await ask(router, stream=stream, input=[QUESTION]))["output"]
        [part] = output[0]["content"]
        assert (part["text"], part["annotations"]) == (TEXT, [ANNOTATION])
        await ask(router, stream=stream, input=[QUESTION, *output, {**QUESTION, "content": "Why?"}])
        first, second = [orjson.loads(request.body)["messages"] for request in upstream.requests]
        document = first[0]["content"][0]
        assert document["citations"] == {"enabled": True}
        assert second[0]["content"][0] == document
        assert second[1] == {"role": "assistant", "content": [{"type": "text", "text": TEXT}]}


def annotations_of(reply: Any, *, stream: bool) -> Any:
    """What a completion cites, and its text."""
    if not stream:
        message = reply.json["choices"][0]["message"]
        return message["content"], message["annotations"]
    chunks = [event.json for event in parse_events(reply.body)[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    [annotations] = [delta["annotations"] for delta in deltas if "annotations" in delta]
    return "".join(delta.get("content", "") for delta in deltas), annotations


@STREAM
async def test_chats_are_annotated_and_go_back(*, stream: bool) -> None:
    asked = {"role": "user", "content": "Which colour?"}
    cited = {name: value for name, value in ANNOTATION.items() if name != "type"}
    found = dict(CITATION, type="web_search_result_location", url=URL, title="The sky")
    script = answering(stream=stream, citation=found)
    async with (
        Upstream(default=script) as upstream,
        Upstream(default=SPEECH["responses"].script()) as other,
        routing(citing(upstream), translating(other)) as router,
    ):
        reply = await post(router, "/v1/chat/completions", messages=[asked], stream=stream)
        text, annotations = annotations_of(reply, stream=stream)
        assert text == TEXT
        assert annotations == [{"type": "url_citation", "url_citation": cited}]
        said = {"role": "assistant", "content": text, "annotations": annotations}
        history = [asked, said, asked]
        await post(router, "/v1/chat/completions", model="n", messages=history, stream=stream)
        [part] = orjson.loads(other.requests[-1].body)["input"][1]["content"]
        assert (part["text"], part["annotations"]) == (TEXT, [ANNOTATION])


@STREAM
async def test_a_history_of_anthropics_client_keeps_its_citations(*, stream: bool) -> None:
    found = dict(CITATION, type="web_search_result_location", url=URL, title="The sky")
    messages = [
        {"role": "user", "content": "Which colour?"},
        {"role": "assistant", "content": blocks(found)},
        {"role": "user", "content": "Why?"},
    ]
    async with (
        Upstream(default=SPEECH["responses"].script()) as upstream,
        routing(endpoint(upstream, "responses")) as router,
    ):
        await post(router, "/v1/messages", max_tokens=99, messages=messages, stream=stream)
        [request] = upstream.requests
        [part] = orjson.loads(request.body)["input"][1]["content"]
        assert (part["text"], part["annotations"]) == (TEXT, [ANNOTATION])
