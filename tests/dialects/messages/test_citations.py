"""What an answer cites, as annotations; and how an endpoint is asked to cite."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import ResponseOutputText

from router.dialects.chat.encode_stream import ChatEncoder
from router.dialects.chat.replay import chunks
from router.dialects.messages.citations import annotation_of
from router.dialects.messages.decode_history import MessagesHistory
from router.dialects.messages.decode_stream import MessagesDecoder
from router.dialects.messages.encode_request import encode_for_messages
from router.dialects.messages.encode_response import message_of
from router.response.machine import MachineOptions
from router.settings.schema import EndpointSettings
from tests.support.order import Event
from tests.support.reading import decoded, events_of, in_bytes, make_builder, read_all, sse

PAGE: dict[str, Any] = {
    "type": "page_location",
    "cited_text": "The sky is blue.",
    "document_index": 0,
    "document_title": "sky.pdf",
    "start_page_number": 1,
    "end_page_number": 2,
}
WEB: dict[str, Any] = {
    "type": "web_search_result_location",
    "cited_text": "Grass is green.",
    "encrypted_index": "x",
    "title": "Grass",
    "url": "https://grass.example/",
}
KNOWN = {**PAGE, "file_id": "file_1"}
FILE = {"type": "file_citation", "file_id": "file_1", "index": 0, "filename": "sky.pdf"}
URL = {"type": "url_citation", "url": "https://grass.example/", "title": "Grass"}
SAID = ["Ä: ", "the sky is blue", " and ", "grass is green", "."]
TEXT = "".join(SAID)
CITED = {1: [KNOWN, {**KNOWN, "start_page_number": 7, "end_page_number": 8}], 3: [WEB, KNOWN]}
PLACED = {**URL, "start_index": 23, "end_index": 37}
ANNOTATIONS = [FILE, PLACED, FILE]


def blocks() -> list[dict[str, Any]]:
    return [
        {"type": "text", "text": text, "citations": CITED.get(place)}
        for place, text in enumerate(SAID)
    ]


def message() -> bytes:
    told = {"type": "message", "content": blocks(), "stop_reason": "end_turn", "usage": {}}
    return orjson.dumps(told)


def stream() -> bytes:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"usage": {}}}]
    for index, block in enumerate(blocks()):
        at = {"index": index}
        begun = {"type": "text", "text": "", "citations": []}
        events.append({"type": "content_block_start", **at, "content_block": begun})
        halves = [block["text"][:5], block["text"][5:]]
        deltas: list[dict[str, Any]] = [{"type": "text_delta", "text": half} for half in halves]
        cites = [{"type": "citations_delta", "citation": one} for one in block["citations"] or ()]
        for delta in (*cites[:1], *deltas, *cites[1:]):
            events.append({"type": "content_block_delta", **at, "delta": delta})
        events.append({"type": "content_block_stop", **at})
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}})
    return sse(*events, {"type": "message_stop"})


def decoder(*documents: str, **options: Any) -> MessagesDecoder:
    return MessagesDecoder(make_builder(), MachineOptions(documents=documents, **options))


def part_of(response: Any) -> dict[str, Any]:
    [item] = response["output"]
    [part] = item["content"]
    found: dict[str, Any] = part
    return found


def added(events: list[Event]) -> list[Any]:
    kind = "response.output_text.annotation.added"
    told = [event for event in events if event["type"] == kind]
    assert [event["annotation_index"] for event in told] == list(range(len(told)))
    return [event["annotation"] for event in told]


def test_what_it_cites_is_annotated() -> None:
    whole = part_of(orjson.loads(decoder().whole(message())))
    assert whole == {
        "type": "output_text",
        "text": TEXT,
        "annotations": ANNOTATIONS,
        "logprobs": [],
    }
    assert TEXT[23:37] == "grass is green"
    ResponseOutputText.model_validate(whole, strict=True)


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_each_is_told_in_the_stream(size: int) -> None:
    events = events_of(decoder(), in_bytes(stream(), size))
    assert added(events) == ANNOTATIONS
    assert part_of(events[-1]["response"])["annotations"] == ANNOTATIONS
    kinds = [event["type"] for event in events]
    first = kinds.index("response.output_text.annotation.added")
    assert kinds[first - 1] == "response.output_text.delta"


def test_what_waits_is_annotated_when_its_turn_comes() -> None:
    reader = decoder()
    reader.call(0, "c", "look", '{"a":')
    reader.text("before ")
    reader.text("cited")
    reader.annotate(5, [dict(URL)])
    assert added(decoded(reader.take())) == []
    reader.call(0, None, None, "1}")
    reader.complete()
    assert added(decoded(reader.take())) == [{**URL, "start_index": 7, "end_index": 12}]


def test_the_text_of_a_forced_call_cites_nothing() -> None:
    reader = decoder(forced_call=True)
    content = [{"type": "text", "text": '{"name":"f","arguments":{}}', "citations": [PAGE]}]
    body = {"type": "message", "content": content, "stop_reason": "end_turn"}
    [call] = orjson.loads(reader.whole(orjson.dumps(body)))["output"]
    assert call["type"] == "function_call"


@pytest.mark.parametrize(
    ("citation", "documents", "annotation"),
    [
        (KNOWN, (), FILE),
        (KNOWN | {"type": "char_location"}, ("",), FILE),
        (KNOWN | {"type": "content_block_location", "document_index": 1}, (), FILE | {"index": 1}),
        (KNOWN | {"document_title": None}, (), FILE | {"filename": ""}),
        (PAGE, ("https://grass.example/",), URL | {"title": "sky.pdf"}),
        (PAGE | {"document_title": None}, ("https://grass.example/",),
         URL | {"title": "https://grass.example/"}),
        (WEB, (), URL),
        ({"type": "search_result_location", "source": "https://grass.example/", "title": "Grass"},
         (), URL),
        ({"type": "search_result_location", "source": "shelf 7", "title": "Grass"}, (), None),
        (WEB | {"url": 7}, (), None),
        (PAGE | {"document_index": -1}, ("https://a/",), None),
        (PAGE | {"document_index": None}, (), None),
        ({"type": "something_new"}, (), None),
        ({"type": ["page_location"]}, (), None),
        ("page_location", (), None),
    ],
)  # fmt: skip
def test_each_citation(citation: Any, documents: tuple[str, ...], annotation: Any) -> None:
    assert annotation_of(citation, documents) == annotation


def test_a_file_without_an_id_has_one_of_its_own() -> None:
    cited: list[dict[str, Any]] = []
    for more in ({}, {"start_page_number": 9}, {"document_index": 1}, {"document_title": "b"}):
        annotation = annotation_of(PAGE | more, ())
        assert annotation is not None
        cited.append(annotation)
    ids = [one["file_id"] for one in cited]
    assert ids[0] == ids[1]
    assert len({*ids}) == 3
    assert all(one.startswith("file_") for one in ids)


def test_citations_without_end_are_bounded() -> None:
    many = [{**WEB, "url": f"https://grass.example/{place}"} for place in range(1000)]
    body = {"type": "message", "content": [{"type": "text", "text": "All.", "citations": many}]}
    annotations = part_of(orjson.loads(decoder().whole(orjson.dumps(body))))["annotations"]
    assert [one["url"] for one in annotations] == [one["url"] for one in many[:256]]


def test_a_chat_is_told_of_the_web_pages() -> None:
    cited = {name: value for name, value in PLACED.items() if name != "type"}
    told = [{"type": "url_citation", "url_citation": cited}]
    whole = orjson.loads(ChatEncoder(decoder(), wants_usage=False, muted=True).whole(message()))
    assert whole["choices"][0]["message"]["annotations"] == told
    ChatCompletion.model_validate(whole, strict=True)
    frames = read_all(ChatEncoder(decoder(), wants_usage=False), stream())
    again = chunks(
        orjson.loads(decoder().whole(message())), id="chatcmpl-1", created=1, include_usage=False
    )
    for streamed in (frames, again):
        said = [frame.json() for frame in streamed[:-1]]
        for chunk in said:
            ChatCompletionChunk.model_validate(chunk, strict=True)
        deltas = [chunk["choices"][0]["delta"] for chunk in said]
        assert "".join(delta.get("content", "") for delta in deltas) == TEXT
        assert [delta["annotations"] for delta in deltas if "annotations" in delta] == [told]


def test_a_history_keeps_what_it_cites() -> None:
    """A text that was cut where it cites is one again. Of what was told here, the places are known;
    of others it is all of the block.
    """
    output = [{"type": "message", "content": [part_of(orjson.loads(decoder().whole(message())))]}]
    [told] = message_of({"output": output}, "nothing")["content"]
    history = MessagesHistory()
    said = {"type": "text", "text": "So: "}
    history.add([{"role": "assistant", "content": [said, told, *blocks()]}])
    history.add([{"role": "assistant", "content": [said]}])
    cited, plain = [item["content"] for item in history.items]
    assert plain == "So: "
    [part] = cited
    assert part["text"] == "So: " + TEXT * 2
    first = {**PLACED, "start_index": 27, "end_index": 41}
    second = {**PLACED, "start_index": 27 + len(TEXT), "end_index": 41 + len(TEXT)}
    assert part["annotations"] == [first, FILE, second, FILE]


def encoded(*, citations: bool = True, **body: Any) -> Any:
    given = {"name": "one", "url": "http://x/v1", "dialect": "messages", "citations": citations}
    files = [
        {"type": "input_file", "file_url": "https://sky.example/s.pdf"},
        {"type": "input_file", "filename": "s.pdf", "file_data": "data:application/pdf;base64,JVB"},
    ]
    items = [
        {"role": "user", "content": [*files, {"type": "input_text", "text": "Which sky?"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": files[:1]},
    ]
    return encode_for_messages(
        {"model": "m", "input": items, **body},
        model="claude-opus-4-8",
        stream=False,
        usage=True,
        settings=EndpointSettings.model_validate(given),
        images={},
    )


def test_documents_may_be_cited_where_that_is_wanted() -> None:
    asked = encoded()
    assert orjson.dumps(asked.body).count(b'"citations":{"enabled":true}') == 3
    assert asked.documents == ("https://sky.example/s.pdf", "", "https://sky.example/s.pdf")
    assert b"citations" not in orjson.dumps(encoded(citations=False).body)
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    structured = encoded(text={"format": form})
    assert "format" in structured.body["output_config"]  # beside which Anthropic takes no citations
    assert b"citations" not in orjson.dumps(structured.body)
