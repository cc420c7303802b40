"""Native answers that break, or that another endpoint has to finish."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.chat.decode_stream import ChatDecoder
from router.dialects.responses.decode_stream import ResponsesDecoder
from router.errors import (
    InternalError,
    UpstreamError,
    UpstreamFailure,
    UpstreamRateLimited,
)
from tests.support.chat import chat, text
from tests.support.native import (
    ACCOUNT,
    answer,
    begun,
    call,
    decoder,
    events,
    message,
    reasoning,
    refusal,
)
from tests.support.order import check_order
from tests.support.reading import (
    BROKEN,
    checked,
    decoded,
    make_builder,
    native,
    read_all,
    read_to_the_end,
    said,
)

FAILED = {"status": "failed", "error": {"code": "server_error", "message": "on fire"}}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "server_error", "message": "on fire"}, UpstreamFailure),
        ({"code": "rate_limit_exceeded", "message": "slow down"}, UpstreamRateLimited),
        ({"code": ["x"], "message": "on fire"}, UpstreamFailure),
        ({}, UpstreamFailure),
        (None, UpstreamFailure),
        ("on fire", UpstreamFailure),
    ],
)
def test_the_endpoints_failure_before_output_is_raised(
    error: Any, kind: type[UpstreamError]
) -> None:
    subject = decoder()
    frames = read_all(subject, answer(end="failed", error=error))
    assert type(subject.error) is kind
    assert [frame.type for frame in frames] == ["response.created", "response.in_progress"]
    assert not subject.has_output
    with pytest.raises(kind):
        decoder().whole(orjson.dumps(begun(status="failed", error=error)))


def test_a_failure_by_the_requests_fault_is_passed_on() -> None:
    error = {"code": "invalid_image", "message": "cannot be read"}
    assert checked(decoder(), answer(end="failed", error=error))["error"] == error
    whole = orjson.loads(decoder().whole(orjson.dumps(begun(status="failed", error=error))))
    assert (whole["status"], whole["error"], whole["id"]) == ("failed", error, "resp_0001")


def test_the_endpoints_failure_after_output_is_passed_on() -> None:
    final = checked(decoder(), answer(message("A"), end="failed", **FAILED))
    assert final["error"] == FAILED["error"]


ERRORS: dict[str, tuple[bytes, type[UpstreamError], str]] = {
    "flat": (
        native({"type": "error", "code": "x", "message": "on fire"}),
        UpstreamFailure,
        "on fire",
    ),
    "nested": (
        native({"type": "error", "error": {"message": "on fire"}}),
        UpstreamFailure,
        "on fire",
    ),
    "limited": (
        native({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}),
        UpstreamRateLimited,
        "slow down",
    ),
    "bare": (native({"type": "error"}), UpstreamFailure, "reported an error"),
    "odd code": (
        native({"type": "error", "code": ["x"], "message": 5}),
        UpstreamFailure,
        "reported an error",
    ),
    "without a type": (native({"error": {"message": "on fire"}}), UpstreamFailure, "on fire"),
    "beside a type": (
        native({"type": "response.output_text.delta", "error": "on fire"}),
        UpstreamFailure,
        "on fire",
    ),
    "no type": (native({"a": 1}), UpstreamFailure, "without a type"),
    "an empty type": (native({"type": ""}), UpstreamFailure, "without a type"),
    "a type that is none": (native({"type": ["x"]}), UpstreamFailure, "without a type"),
    "a type of two lines": (
        b"data: %b\n\n" % orjson.dumps({"type": "a\ndata: x"}),
        UpstreamFailure,
        "without a type",
    ),
    "not JSON": (b"data: {oops\n\n", UpstreamFailure, "not valid JSON"),
    "not an object": (b"data: [1]\n\n", UpstreamFailure, "not a JSON object"),
    "too deep": (
        b'data: {"type":"response.x","a":' + b"[" * 300 + b"]" * 300 + b"}\n\n",
        UpstreamFailure,
        "too deeply",
    ),
    "an end without response": (
        native({"type": "response.completed"}),
        UpstreamFailure,
        "without a response",
    ),
    "an end with another thing": (
        native({"type": "response.failed", "response": "x"}),
        UpstreamFailure,
        "without a response",
    ),
    "a beginning without response": (
        native({"type": "response.created", "response": None}),
        UpstreamFailure,
        "without a response",
    ),
    "the chat marker": (b"data: [DONE]\n\n", UpstreamFailure, "not valid JSON"),
}


@pytest.mark.parametrize("case", ERRORS)
@pytest.mark.parametrize("before", [0, 1, 2, 3, 5, 8])
def test_a_broken_stream_fails(case: str, before: int) -> None:
    broken, kind, text_of_error = ERRORS[case]
    made = events(message("Hello"))
    subject = decoder()
    frames = subject.feed(native(*made[:before]) + broken + native(*made[before:]))
    assert type(subject.error) is kind
    assert text_of_error in subject.error.message
    assert subject.has_output == (before > 2)
    assert (subject.feed(answer()), subject.finish(), subject.salvage()) == ([], [], [])
    final = check_order(decoded([*frames, *subject.fail(subject.error)]))
    assert final["error"]["message"] == subject.error.message


@pytest.mark.parametrize(
    "items",
    [
        (message("Hello"),),
        (message("One", "Two"),),
        (refusal("No, no."),),
        (reasoning("blob"), call("f", '{"a":1}'), message("Hello")),
    ],
)
def test_whatever_was_streamed_is_in_a_failure(items: tuple[dict[str, Any], ...]) -> None:
    made = events(*items)
    for count in range(len(made)):
        subject = decoder()
        frames = read_to_the_end(subject, native(*made[:count]))
        assert subject.error is not None
        final = check_order(decoded(frames))
        assert final["status"] == "failed"
        assert final["error"]["message"] == BROKEN.message


def test_a_broken_off_message() -> None:
    made = events(message("One", "Two"))
    subject = decoder()
    read_all(subject, native(*made[:-4]))
    subject.fail(InternalError("a bug"))
    assert subject.final is not None
    (item,) = subject.final["output"]
    assert [part["text"] for part in item["content"]] == ["One", "Two"]
    assert item["status"] == "incomplete"
    assert subject.final["output_text"] == "OneTwo"
    assert subject.final["error"] == {"code": "server_error", "message": "a bug"}


@pytest.mark.parametrize(
    ("item", "status"),
    [
        ({"type": "web_search_call", "id": "ws_1", "status": "in_progress"}, "failed"),
        ({"type": "file_search_call", "id": "fs_1", "status": "searching"}, "incomplete"),
        ({"type": "mcp_list_tools", "id": "mcpl_1", "tools": []}, None),
    ],
)
def test_a_broken_off_hosted_tool(item: dict[str, Any], status: str | None) -> None:
    subject = decoder()
    subject.feed(native({"type": "response.output_item.added", "output_index": 0, "item": item}))
    subject.fail(BROKEN)
    assert subject.final is not None
    assert subject.final["output"][0].get("status") == status


BEGINNINGS = {
    "nothing": b"",
    "their beginning": native(*events(end=None)),
    "a failure": answer(end="failed", **FAILED),
}


@pytest.mark.parametrize("case", BEGINNINGS)
@pytest.mark.parametrize("delivered", [False, True])
@pytest.mark.parametrize("second", ["native", "chat"])
def test_another_endpoint_takes_over(case: str, delivered: bool, second: str) -> None:
    builder = make_builder(tools=[{"type": "function", "name": "f"}])
    failing = ResponsesDecoder(builder, ACCOUNT)
    lost = read_all(failing, BEGINNINGS[case])
    assert failing.error is not None
    assert not failing.has_output
    shown = []
    if delivered:
        shown = lost or builder.open()
        builder.delivered = True
    builder.rewind()
    other = ResponsesDecoder(builder, "other") if second == "native" else ChatDecoder(builder)
    stream = chat(text("A"))
    if second == "native":
        stream = answer(message("A"), created_at=1_760_000_000, tools=[])
    final = check_order(decoded([*shown, *read_all(other, stream)]))
    assert said(final) == [("text", "A")]
    if delivered and case != "nothing":
        assert final["created_at"] == 1_750_000_000
