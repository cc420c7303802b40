"""Answers of endpoints that speak the Responses API themselves."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.responses.decode_stream import ResponsesDecoder
from router.dialects.responses.sealing import seal, unseal
from router.errors import (
    UpstreamFailure,
)
from tests.support.native import (
    ACCOUNT,
    UNIQUE,
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
    NOW,
    checked,
    decoded,
    events_of,
    in_bytes,
    make_builder,
    native,
    read_all,
    trace,
    traces,
)
from tests.support.schema import faults, faults_of_event

ANSWERS: dict[str, tuple[dict[str, Any], ...]] = {
    "text": (message("Hello"),),
    "nothing": (),
    "two parts": (message("One", "Two"),),
    "refusal": (refusal("No."),),
    "reasoning and call": (reasoning(), call("f", '{"a":1}')),
    "calls": (call("f", "{}"), call("g", '{"b":2}'), message("Done")),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_passes(case: str) -> None:
    items = list(ANSWERS[case])
    assert checked(decoder(), answer(*items))["output"] == items


@pytest.mark.parametrize("case", ANSWERS)
def test_any_cut_gives_the_same_frames(case: str) -> None:
    stream = answer(*ANSWERS[case])
    expected = [frame.encode() for frame in read_all(decoder(), stream)]
    for size in (1, 7, 100):
        assert [f.encode() for f in read_all(decoder(), in_bytes(stream, size))] == expected
    assert [f.encode() for f in read_all(decoder(), stream.replace(b"\n", b"\r\n"))] == expected


def test_what_needs_no_change_passes_byte_by_byte() -> None:
    stream = answer(message("Hello"), call("f", "{}"))
    theirs = stream.split(b"\n\n")
    ours = [frame.encode().rstrip() for frame in read_all(decoder(), stream)]
    assert ours[2:-1] == theirs[2:-2]


def test_every_snapshot_is_the_routers() -> None:
    request = {
        "metadata": {"ours": "1"},
        "store": True,
        "previous_response_id": None,
        "tools": [{"type": "function", "name": "f"}],
        "instructions": "Be brief.",
    }
    tools = [{"type": "function", "name": "f", "strict": True, "parameters": {"theirs": 1}}]
    theirs: dict[str, Any] = {
        "tools": tools,
        "instructions": "Be brief.",
        "conversation": None,
        "prompt": None,
    }
    made = events(message("A"), **theirs)
    for event in made[:2]:
        event["response"] |= theirs
    all_events = events_of(decoder(**request), native(*made))
    for event in (all_events[0], all_events[1], all_events[-1]):
        response = event["response"]
        assert response["id"] == "resp_0001"
        assert response["created_at"] == 1_750_000_000
        assert (response["metadata"], response["store"]) == ({"ours": "1"}, True)
        assert (response["tools"], response["instructions"]) == (tools, "Be brief.")
        assert response["background"] is False
        assert "conversation" not in response
        assert "prompt" not in response
        assert response["text"]["format"] == {"type": "text"}


def test_ids_are_the_routers_wherever_they_stand() -> None:
    made = events(message("A"))
    made[4]["response_id"] = "resp_theirs"
    made.insert(5, {"type": "response.something", "response": begun()})
    body = b"".join(frame.encode() for frame in read_all(decoder(), native(*made)))
    assert b"resp_theirs" not in body
    assert body.count(b'"response_id":"resp_0001"') == 1


@pytest.mark.parametrize("delivered", [False, True])
def test_tools_are_the_same_in_every_snapshot(delivered: bool) -> None:
    """Whoever's wording went out first, it stays, also once the head has been sent."""
    builder = make_builder(tools=[{"type": "function", "name": "f"}])
    subject = ResponsesDecoder(builder, ACCOUNT)
    tool = {"type": "function", "name": "f", "strict": False, "theirs": 1}
    theirs: dict[str, Any] = {"tools": [tool]}
    made = events(message("A"), **theirs)
    for event in made[:2]:
        event["response"] |= theirs
    frames = subject.feed(native(*made[:2]))
    builder.delivered = delivered
    frames += subject.feed(native(*made[2:], start=2))
    assert check_order(decoded(frames))["tools"] == theirs["tools"]


OPENINGS: dict[str, dict[str, Any]] = {
    "output": {"output": [message("A")]},
    "output that is none": {"output": "x"},
    "usage": {"usage": {"input_tokens": 1}},
    "status": {"status": "queued"},
    "no status": {"status": None},
    "error": {"error": {"code": "x"}},
    "details": {"incomplete_details": {"reason": "x"}},
    "another object": {"object": "response", "completed_at": 7},
    "a date": {"created_at": "2026-01-01"},
    "a small date": {"created_at": 5},
    "a large date": {"created_at": 1e300},
    "no date": {"created_at": None},
    "a true date": {"created_at": True},
    "a date with fractions": {"created_at": 1_750_000_000.75},
    "a list of ids": {"id": ["resp_1"]},
}


@pytest.mark.parametrize("case", OPENINGS)
def test_an_odd_beginning(case: str) -> None:
    made = events(message("A"), **{k: v for k, v in OPENINGS[case].items() if k == "created_at"})
    made[0]["response"] |= OPENINGS[case]
    all_events = events_of(decoder(), native(*made))
    odd_date = "date" in case and "fractions" not in case
    assert all_events[-1]["response"]["created_at"] == (NOW if odd_date else 1_750_000_000)


def test_the_beginning_may_be_missing() -> None:
    assert checked(decoder(), native(*events(message("A"))[2:], start=2))["output"] == [
        message("A")
    ]
    assert checked(decoder(), native(*events(end="completed")[2:]))["output"] == []


def test_a_queued_beginning_is_our_beginning() -> None:
    made = events(message("A"))
    made.insert(1, {"type": "response.queued", "response": begun(status="queued")})
    made[0]["response"]["status"] = "queued"
    checked(decoder(), native(*made))


def test_keep_alive_events_are_left_out() -> None:
    made = events(message("Hello"))
    for place in (0, 2, 5, len(made)):
        made.insert(place, {"type": "keepalive"})
    all_events = events_of(decoder(), native(*made))
    assert "keepalive" not in [event["type"] for event in all_events]


def test_numbers_are_the_routers() -> None:
    for start in (1, 100):
        checked(decoder(), native(*events(message("A")), start=start))
    odd = [{**event, "sequence_number": "x"} for event in events(message("A"))]
    checked(decoder(), native(*odd))


def test_several_data_lines_go_out_in_one() -> None:
    stream = answer(message("A")).replace(b',"item_id"', b'\ndata: ,"item_id"')
    assert b"\ndata: ,".join([b""] * 2) in stream
    checked(decoder(), stream)


@pytest.mark.parametrize("reported", [[], None])
def test_a_final_output_left_out_is_what_was_streamed(reported: Any) -> None:
    final = checked(decoder(), answer(reasoning("blob"), message("A"), output=reported))
    assert [item["type"] for item in final["output"]] == ["reasoning", "message"]
    assert final["output"][0]["encrypted_content"] == seal("blob", ACCOUNT)


def test_usage_gets_its_details() -> None:
    subject = decoder()
    final = checked(subject, answer(message("A"), usage={"input_tokens": 2, "output_tokens": 1}))
    assert final["usage"] == subject.usage
    assert final["usage"]["total_tokens"] == 3
    assert final["usage"]["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
    for usage in (None, "x", [1]):
        odd = decoder()
        assert checked(odd, answer(message("A"), usage=usage))["usage"] is None
        assert odd.usage is None


@pytest.mark.parametrize(
    ("end", "final"),
    [
        ("completed", {"completed_at": 7}),
        ("completed", {}),
        ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}),
        ("failed", {"error": {"code": "server_error", "message": "on fire"}}),
        ("failed", {"error": None}),
        ("completed", {"status": "in_progress"}),
    ],
)
def test_the_ends(end: str, final: dict[str, Any]) -> None:
    ended = checked(decoder(), answer(message("A"), end=end, **final))
    assert ended["status"] == end
    expected = final.get("completed_at", NOW) if end == "completed" else None
    assert ended["completed_at"] == expected
    assert ended["output_text"] == "A"


def test_nothing_follows_the_end() -> None:
    stream = answer(message("A")) + b"data: [DONE]\n\n" + answer(message("B"))
    for data in (stream, in_bytes(stream)):
        subject = decoder()
        assert checked(subject, data)["output_text"] == "A"
        assert (subject.fail(BROKEN), subject.salvage(), subject.finish()) == ([], [], [])


def test_reasoning_is_sealed_with_its_account() -> None:
    all_events = events_of(decoder(), answer(reasoning("blob"), message("A")))
    sealed = seal("blob", ACCOUNT)
    items = [event["item"] for event in all_events if "item" in event]
    assert [item.get("encrypted_content") for item in items] == [sealed, sealed, None, None]
    assert all_events[-1]["response"]["output"][0]["encrypted_content"] == sealed
    assert unseal(sealed) == (ACCOUNT, "blob")
    body = orjson.dumps(begun(status="completed", output=[reasoning("blob")]))
    assert orjson.loads(decoder().whole(body))["output"][0]["encrypted_content"] == sealed
    for odd in (None, "", 5):
        final = checked(decoder(), answer({**reasoning(), "encrypted_content": odd}))
        assert final["output"][0]["encrypted_content"] == odd


@pytest.mark.parametrize("blob", ["", "plain", "pm1", "pm1.", "pm1.nodot"])
def test_what_is_not_sealed(blob: str) -> None:
    assert unseal(blob) == (None, blob)


def test_a_sealed_blob_may_have_any_text() -> None:
    assert unseal(seal("pm1.x.y.z", "acc")) == ("acc", "pm1.x.y.z")


def test_a_whole_answer() -> None:
    subject = decoder(metadata={"ours": "1"})
    body = begun(status="completed", output=[message("A"), call("f", "{}")], usage=None)
    final = orjson.loads(subject.whole(orjson.dumps(body)))
    assert (final["id"], final["created_at"], final["completed_at"]) == ("resp_0001", NOW, NOW)
    assert (final["metadata"], final["output_text"]) == ({"ours": "1"}, "A")
    assert final["output"] == body["output"]
    with pytest.raises(UpstreamFailure, match="single JSON body"):
        decoder().whole_as_stream(orjson.dumps(body))


@pytest.mark.parametrize(
    ("body", "message_of_error"),
    [
        (b"<html>", "not valid JSON"),
        (b"{}", "without output"),
        (b'{"output": {}}', "without output"),
        (b'{"error": {"message": "on fire"}}', "on fire"),
        (b'{"output": [], "status": "in_progress"}', "not finished"),
        (b'{"output": [], "status": ["completed"]}', "not finished"),
    ],
)
def test_a_broken_whole_answer(body: bytes, message_of_error: str) -> None:
    with pytest.raises(UpstreamFailure, match=message_of_error):
        decoder().whole(body)


@pytest.mark.parametrize("output", [[{"type": "message", "id": UNIQUE, "content": 5}], [{}]])
def test_odd_items_of_a_whole_answer_pass(output: list[Any]) -> None:
    output = [5, *output, None, "x"]
    final = orjson.loads(decoder().whole(orjson.dumps(begun(status="completed", output=output))))
    assert (final["output"], final["output_text"]) == (output[1:-2], "")


@pytest.mark.parametrize("name", traces("Responses/*/*.txt", "Conversations/*/*response.txt"))
def test_recorded_streams(name: str) -> None:
    all_events = events_of(decoder(), trace(name))
    final = all_events[-1]["response"]
    recorded = [orjson.loads(x[6:]) for x in trace(name).split(b"\n") if x.startswith(b"data: ")]
    assert final["output"] == recorded[-1]["response"]["output"]
    assert len(all_events) == len(recorded)
    seen: set[str] = set()
    for event in all_events:
        if event["type"] not in seen:
            seen.add(event["type"])
            assert faults_of_event(event) == []


ANSWERED = [name for name in traces("Responses/*/response.json") if "error" not in name]


@pytest.mark.parametrize("name", ANSWERED)
def test_recorded_answers(name: str) -> None:
    recorded = orjson.loads(trace(name))
    final = orjson.loads(decoder().whole(trace(name)))
    assert faults("Response", final) == []
    assert final["output"] == recorded["output"]
    assert final["usage"]["total_tokens"] == recorded["usage"]["total_tokens"]
