"""Responses told as messages: golden streams, and what a sloppy endpoint makes of them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import orjson
import pytest

from router.dialects.messages import encode_stream
from router.dialects.messages.encode_stream import MessagesEncoder, TokenCountEncoder
from router.dialects.messages.thinking import Show, sign
from router.errors import UpstreamFailure, UpstreamRejected
from router.response.frame import Frame
from tests.support import native as natives
from tests.support.anthropic import check_message, check_stream, events_of

SEALED = "pm1.acc0.blob"
LOOK = natives.call("look", '{"a":1}')
TOOL_USE = {"type": "tool_use", "id": "call_look", "name": "look", "input": {"a": 1}}


CITING = natives.message("See A")
CITING["content"][0]["annotations"] = [
    {"type": "url_citation", "url": "http://a", "title": "A", "start_index": 4, "end_index": 5},
    {"type": "file_citation"}, 3,
]  # fmt: skip


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def use(name: str, asked: dict[str, Any]) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": "srvtoolu_1", "name": name, "input": asked}


def ran(kind: str, content: Any) -> dict[str, Any]:
    return {"type": f"{kind}_tool_result", "tool_use_id": "srvtoolu_1", "content": content}


def said(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def reasoning(*texts: str, source: str = "summary", sealed: str | None = SEALED) -> dict[str, Any]:
    kind = "summary_text" if source == "summary" else "reasoning_text"
    parts = [{"type": kind, "text": text} for text in texts]
    item = {"id": "rs_1", "type": "reasoning", "summary": [], source: parts}
    return item if sealed is None else {**item, "encrypted_content": sealed}


def thought(text: str, sealed: str | None = SEALED) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": sign(sealed)}


def frames(events: list[dict[str, Any]]) -> list[Frame]:
    return [Frame.of(event) for event in events]


def told(events: list[dict[str, Any]], show: Show = "text") -> list[dict[str, Any]]:
    """The client's events, the same whether they come one by one or together."""
    one = MessagesEncoder(show, "req_1")
    singly = [frame for event in frames(events) for frame in one.frames([event])]
    together = MessagesEncoder(show, "req_1").frames(frames(events))
    assert events_of(singly) == events_of(together)
    return events_of(together)


def whole(response: dict[str, Any], show: Show = "text") -> dict[str, Any]:
    message: dict[str, Any] = orjson.loads(
        MessagesEncoder(show, "req_1").whole(orjson.dumps(response))
    )
    check_message(message)
    return message


def both(*items: dict[str, Any], show: Show = "text", **final: Any) -> dict[str, Any]:
    """The message for these items, which is the same as a stream and in one piece."""
    events = natives.events(*items, **final)
    message = whole(events[-1]["response"], show)
    assert check_stream(told(events, show)) == message
    return message


@pytest.mark.parametrize(
    ("items", "content", "stop"),
    [
        ([natives.message("Hällo")], [said("Hällo")], "end_turn"),
        ([natives.message("a", "b")], [said("a"), said("b")], "end_turn"),
        ([natives.message("")], [], "end_turn"),
        ([], [], "end_turn"),
        ([natives.refusal("No.")], [said("No.")], "refusal"),
        ([LOOK], [TOOL_USE], "tool_use"),
        ([natives.call("look", "")], [{**TOOL_USE, "input": {}}], "tool_use"),
        (
            [natives.message("So"), LOOK, natives.call("b", "{}")],
            [said("So"), TOOL_USE, {**TOOL_USE, "id": "call_b", "name": "b", "input": {}}],
            "tool_use",
        ),
        ([reasoning("Hm"), natives.message("a")], [thought("Hm"), said("a")], "end_turn"),
        ([reasoning("Hm", "So")], [thought("Hm\n\nSo")], "end_turn"),
        ([reasoning("Hm", sealed=None)], [thought("Hm", None)], "end_turn"),
        ([reasoning("Hm", source="content")], [thought("Hm")], "end_turn"),
        ([reasoning()], [{"type": "redacted_thinking", "data": sign(SEALED)}], "end_turn"),
        ([reasoning(sealed=None)], [], "end_turn"),
        (
            [{"id": "ws_1", "type": "web_search_call", "status": "completed"},
             natives.message("a")],
            [use("web_search", {}), ran("web_search", []), said("a")],
            "end_turn",
        ),
        (
            [{"id": "ws_1", "type": "web_search_call", "status": "completed",
              "action": {"type": "search", "query": "q", "queries": ["q"],
                         "sources": [{"type": "url", "url": "http://a"}, 3, {"url": 4}]},
              "results": [{"url": "http://a", "title": "A", "text": "ö" * 200, "date": "May"}, 3]},
             CITING],
            [use("web_search", {"query": "q"}),
             ran("web_search", [{"type": "web_search_result", "url": "http://a", "title": "A",
                                 "encrypted_content": "pmw1." + b64("ö" * 200),
                                 "page_age": "May"}]),
             {**said("See A"), "citations": [
                 {"type": "web_search_result_location", "url": "http://a", "title": "A",
                  "encrypted_index": "pmw1." + b64("4-5"), "cited_text": "ö" * 150}]}],
            "end_turn",
        ),
        (
            [{"id": "ws_1", "type": "web_search_call", "status": "failed", "results": [],
              "action": {"type": "open_page", "url": "http://a"}, "error": "max_uses_exceeded"}],
            [use("web_search", {"url": "http://a"}),
             ran("web_search", {"type": "web_search_tool_result_error",
                                "error_code": "max_uses_exceeded"})],
            "end_turn",
        ),
        (
            [{"id": "tsc_1", "type": "tool_search_call", "name": "tool_search_tool_bm25",
              "arguments": '{"query":"q"}', "tool_references": ["a", "b"]}],
            [use("tool_search_tool_bm25", {"query": "q"}),
             ran("tool_search", {
                 "type": "tool_search_tool_search_result",
                 "tool_references": [{"type": "tool_reference", "tool_name": "a"},
                                     {"type": "tool_reference", "tool_name": "b"}]})],
            "end_turn",
        ),
        # An endpoint's own: nobody could say which tools it has loaded.
        ([{"id": "tsc_1", "type": "tool_search_call", "name": 3, "arguments": {}}], [], "end_turn"),
    ],
)  # fmt: skip
def test_blocks(items: list[Any], content: list[Any], stop: str) -> None:
    message = both(*items)
    assert message["content"] == content
    assert (message["stop_reason"], message["stop_sequence"]) == (stop, None)
    assert message["id"] == "msg_theirs"
    assert message["model"] == "m"


def test_thinking_nobody_asked_for_is_not_told() -> None:
    assert both(reasoning("Hm"), natives.message("a"), show="nothing")["content"] == [said("a")]


def test_thinking_may_be_only_signed() -> None:
    message = both(reasoning("Hm"), reasoning("So", sealed=None), LOOK, show="signature")
    assert message["content"] == [thought(""), TOOL_USE]


@pytest.mark.parametrize(
    ("final", "stop"),
    [
        ({"reason": "max_output_tokens"}, "max_tokens"),
        ({"reason": "content_filter"}, "refusal"),
        (None, "max_tokens"),
    ],
)
def test_what_cut_it_short(final: Any, stop: str) -> None:
    cut = natives.call("look", '{"a":', status="incomplete")
    message = both(cut, end="incomplete", incomplete_details=final)
    assert message["stop_reason"] == stop
    assert message["content"] == [{**TOOL_USE, "input": {"input": '{"a":'}}]
    assert ("stop_details" in message) == (stop == "refusal")


def test_a_search_is_shown_while_it_is_under_way() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "in_progress"}
    search["action"] = {"type": "search", "query": "q"}  # type: ignore[assignment]
    events = natives.events({**search, "status": "completed"})
    begun = {"type": "response.output_item.added", "output_index": 0, "item": search}
    told = events_of(MessagesEncoder("text", None).frames(frames([*events[:2], begun])))
    assert [event["type"] for event in told] == [
        "message_start", "content_block_start", "content_block_delta",
    ]  # fmt: skip
    assert told[1]["content_block"] == use("web_search", {})
    assert told[2]["delta"]["partial_json"] == '{"query":"q"}'


def test_usage_tells_the_cache_apart() -> None:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 109,
    }
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    assert both(search, natives.message("a"), usage=usage)["usage"] == {
        "input_tokens": 30,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 60,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
        "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
    }
    final = natives.begun(status="completed", output=[], usage=usage, service_tier="priority")
    assert whole(final)["usage"]["service_tier"] == "priority"


def delta(kind: str, place: Any, text: str, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": place, "delta": text, **more}


def between(*events: dict[str, Any], items: list[Any] | None = None) -> list[dict[str, Any]]:
    """A stream of these events; ``items`` is the output it ends with."""
    first, second, *_, last = natives.events(*(items or []))
    return [first, second, *events, last]


def added(place: int, item: dict[str, Any]) -> dict[str, Any]:
    fresh = {**item, "arguments": "", "content": [], "summary": []}
    return {"type": "response.output_item.added", "output_index": place, "item": fresh}


def done(place: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": place, "item": item}


def test_reasoning_is_told_as_it_comes() -> None:
    item = reasoning("Hm ok", "So")
    kind = "reasoning_summary_text"
    events = told(
        between(
            added(0, item),
            delta(kind, 0, "Hm", summary_index=0),
            delta("reasoning_text", 0, "raw", content_index=0),
            delta(kind, 0, " ok", summary_index=0),
            delta(kind, 0, "", summary_index=1),
            delta(kind, 0, "S", summary_index=1),
            done(0, item),
            items=[item],
        )
    )
    message = check_stream(events)
    assert message is not None
    assert message["content"] == [thought("Hm ok\n\nSo")]
    pieces = [e["delta"]["thinking"] for e in events if "thinking" in e.get("delta", {})]
    assert pieces == ["Hm", " ok", "\n\n", "S", "o"]


def test_calls_that_alternate_follow_one_another() -> None:
    one, two = natives.call("look", '{"a":1}'), natives.call("b", '{"b":2}')
    kind = "function_call_arguments"
    events = told(
        between(
            added(0, one),
            added(1, two),
            delta(kind, 1, '{"b"'),
            delta(kind, 0, '{"a"'),
            delta(kind, 1, ":2}"),
            done(1, two),
            delta(kind, 0, ":1}"),
            done(0, one),
            items=[one, two],
        )
    )
    message = check_stream(events)
    assert message is not None
    assert [block["input"] for block in message["content"]] == [{"a": 1}, {"b": 2}]
    pieces = [e["delta"]["partial_json"] for e in events if "partial_json" in e.get("delta", {})]
    assert pieces == ['{"a"', ":1}", '{"b":2}']


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_stream, "MAX_HELD", 10_000)
    encoder = MessagesEncoder("text", None)
    kind = "function_call_arguments"
    encoder.frames(frames([*natives.events(end=None), added(0, LOOK), added(1, LOOK)]))
    assert encoder.frames([Frame.of(delta(kind, 0, "x" * 20_000))])
    piece = Frame.of(delta(kind, 1, "x"))
    assert encoder.frames([piece] * 30) == []
    with pytest.raises(UpstreamFailure):
        encoder.frames([piece] * 10)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([], id="only the end"),
        pytest.param([done(0, natives.message("Hi")), done(1, LOOK)], id="only whole items"),
        pytest.param([delta("output_text", 0, "Hi"), done(0, natives.message("Hi"))],
                     id="one item unsaid"),
        pytest.param([delta("output_text", 0, "H"), added(1, LOOK),
                      delta("function_call_arguments", 1, '{"a"')], id="no item done"),
        pytest.param([added(0, natives.message("Hi")), delta("output_text", 0, "Hi"),
                      done(0, natives.message("Hi")), added(0, LOOK),
                      delta("function_call_arguments", 0, '{"a":1}'), done(0, LOOK)],
                     id="every item in the same place"),
        pytest.param([delta("output_text", None, "Hi", item_id="x"),
                      {**done(0, natives.message("Hi")), "output_index": None, "item_id": "x"},
                      done(1, LOOK)], id="no place"),
    ],
)  # fmt: skip
def test_a_sloppy_stream_adds_up(events: list[Any]) -> None:
    message = check_stream(told(between(*events, items=[natives.message("Hi"), LOOK])))
    assert message is not None
    assert message["content"] == [said("Hi"), TOOL_USE]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", "api_error"),
        ("rate_limit_exceeded", "rate_limit_error"),
        ("insufficient_quota", "rate_limit_error"),
        ("invalid_prompt", "invalid_request_error"),
    ],
)
def test_a_failure_ends_the_stream(code: str, kind: str) -> None:
    error = {"code": code, "message": "Oh no."}
    events = natives.events(natives.message("Hi"), end="failed", error=error)
    events.insert(-2, delta("output_text", 0, "more"))
    events.append(events[-1])
    found = told(events)
    assert check_stream(found) is None
    assert found[-1] == {
        "type": "error",
        "error": {"type": kind, "message": "Oh no."},
        "request_id": "req_1",
    }
    assert [event["type"] for event in found].count("error") == 1


def test_a_failure_in_one_piece() -> None:
    error = {"code": "invalid_prompt", "message": "Oh no."}
    body = orjson.dumps(natives.begun(status="failed", error=error))
    with pytest.raises(UpstreamRejected) as caught:
        MessagesEncoder("text", None).whole(body)
    assert (caught.value.status, caught.value.message) == (400, "Oh no.")
    assert "Oh no" not in caught.value.logged


def test_a_count() -> None:
    encoder = TokenCountEncoder()
    assert encoder.whole(b'{"object":"response.input_tokens","input_tokens":7}') == (
        b'{"input_tokens":7}'
    )
    assert encoder.frames([]) == []
