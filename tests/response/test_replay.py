"""A finished answer, told again as events or as one object."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from router.dialects.responses.fields import OWN_FIELDS
from router.response.builder import ResponseBuilder, StreamState
from router.response.frame import Frame
from router.response.replay import Replay, frame_tokens, replay
from tests.support.answers import (
    CITATION,
    LOGPROBS,
    USAGE,
    answer,
    call,
    custom,
    message,
    reasoning,
    refusal,
    text,
    without_ids,
)
from tests.support.order import check_order
from tests.support.reading import NOW, decoded, make_builder
from tests.support.rebuilding import rebuilt


def told(builder: ResponseBuilder, *output: dict[str, Any], **changes: Any) -> Replay:
    """The replay of an answer with these items; its stream is in order."""
    played = replay(builder, answer(*output, **changes))
    assert rebuilt(decoded(played.frames)) == played.final
    return played


def inside(played: Replay) -> list[dict[str, Any]]:
    """The events of the items, without what each has: the number, and the item's id and place."""
    common = ("sequence_number", "item_id", "output_index")
    return [
        {name: value for name, value in event.items() if name not in common}
        for event in decoded(played.frames)[2:-1]
    ]


def test_a_message_is_told_as_the_contract_says() -> None:
    played = told(make_builder(), message(text("Hello, big world", annotations=[CITATION])))
    part = text("Hello, big world", annotations=[CITATION])
    done = message(part, id="msg_0002")
    at = {"item_id": "msg_0002", "output_index": 0, "content_index": 0}
    kind = "response.output_text"
    opening = make_builder(model="m").snapshot("in_progress", model="m-2026")
    created, going, *events = decoded(played.frames)
    assert created == {"type": "response.created", "sequence_number": 0, "response": opening}
    assert going == {"type": "response.in_progress", "sequence_number": 1, "response": opening}
    expected: list[dict[str, Any]] = [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**done, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **at, "part": text("")},
        *(
            {"type": f"{kind}.delta", **at, "delta": piece, "logprobs": []}
            for piece in ("Hello, ", "big ", "world")
        ),
        {
            "type": f"{kind}.annotation.added",
            **at,
            "annotation_index": 0,
            "annotation": CITATION,
        },
        {"type": f"{kind}.done", **at, "text": "Hello, big world", "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": played.final},
    ]
    assert events == [{"sequence_number": n, **e} for n, e in enumerate(expected, start=2)]
    assert played.final == {
        **opening,
        "status": "completed",
        "completed_at": NOW,
        "output": [done],
        "output_text": "Hello, big world",
        "usage": USAGE,
    }


def test_log_probabilities_come_with_their_tokens() -> None:
    played = told(make_builder(), message(text("Hi you", logprobs=LOGPROBS)))
    deltas = [event for event in inside(played) if "delta" in event]
    assert [(event["delta"], event["logprobs"]) for event in deltas] == [
        ("Hi", LOGPROBS[:1]),
        (" you", LOGPROBS[1:]),
    ]
    check_order(decoded(played.frames))


def test_log_probabilities_of_another_text_come_at_its_end() -> None:
    for logprobs in (
        LOGPROBS,
        [{"token": "Hi"}],
        [{"logprob": 1}],
        [{"token": "x", "bytes": [900]}],
    ):
        played = told(make_builder(), message(text("Hi there, you", logprobs=logprobs)))
        deltas = [event["logprobs"] for event in inside(played) if "delta" in event]
        assert deltas == [[], [], logprobs]


def test_a_refusal_and_several_parts() -> None:
    played = told(make_builder(), message(text("One."), refusal("No, no."), text("Two"), phase="x"))
    kinds = [event["type"].removeprefix("response.") for event in inside(played)]
    assert kinds == [
        "output_item.added",
        *("content_part.added", "output_text.delta", "output_text.done", "content_part.done"),
        *("content_part.added", "refusal.delta", "refusal.delta", "refusal.done"),
        "content_part.done",
        *("content_part.added", "output_text.delta", "output_text.done", "content_part.done"),
        "output_item.done",
    ]
    places = [event["content_index"] for event in inside(played)[1:-1]]
    assert places == [0] * 4 + [1] * 5 + [2] * 4
    assert inside(played)[0]["item"]["phase"] == played.final["output"][0]["phase"] == "x"
    assert played.final["output_text"] == "One.Two"


def test_reasoning() -> None:
    item = reasoning(("Why so", "b"), ("raw text",), encrypted_content="blob", status="completed")
    played = told(make_builder(), item, message(text("x")))
    kinds = [event["type"].removeprefix("response.") for event in inside(played)[:16]]
    summary = ["part.added", "text.delta", "text.done", "part.done"]
    assert kinds == [
        "output_item.added",
        *("content_part.added", "reasoning_text.delta", "reasoning_text.delta"),
        *("reasoning_text.done", "content_part.done"),
        *(f"reasoning_summary_{name}" for name in (*summary[:2], *summary[1:], *summary)),
        "output_item.done",
    ]
    assert inside(played)[0]["item"] == {
        "id": "rs_0002",
        "type": "reasoning",
        "summary": [],
        "content": [],
        "status": "in_progress",
    }
    assert played.final["output"][0] == {**item, "id": "rs_0002"}


def test_silent_reasoning_just_comes_and_is_done() -> None:
    for item in (reasoning(), reasoning(encrypted_content="blob", content=None)):
        played = told(make_builder(), item)
        assert len(inside(played)) == 2
        assert "encrypted_content" not in inside(played)[0]["item"]


def test_calls() -> None:
    minified = '{"city":"Paris","unit":"celsius","days":7,"more":[1,2,3]}'
    played = told(make_builder(), call(), custom(), call(minified, call_id="call_3"))
    assert [e["type"].removeprefix("response.") for e in inside(played)[:5]] == [
        "output_item.added",
        *("function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
    ]
    assert inside(played)[3]["name"] == "f"
    assert inside(played)[8]["type"] == "response.custom_tool_call_input.done"
    assert inside(played)[0]["item"]["arguments"] == inside(played)[5]["item"]["input"] == ""
    assert [item["call_id"] for item in played.final["output"]] == ["call_1", "call_2", "call_3"]
    assert max(len(event.get("delta", "")) for event in inside(played)) < 33
    check_order(decoded(played.frames))


@pytest.mark.parametrize("arguments", ["", "  ", None])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    played = told(make_builder(), call(arguments))
    assert played.final["output"][0]["arguments"] == "{}"


def test_an_empty_text_has_a_delta() -> None:
    played = told(make_builder(), message(text(""), refusal("")), custom(""))
    assert [event["delta"] for event in inside(played) if "delta" in event] == ["", "", ""]
    check_order(decoded(played.frames))


def test_other_items_come_and_are_done() -> None:
    items: list[dict[str, Any]] = [
        {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": None},
        {"id": "cmp_1", "type": "compaction", "encrypted_content": "blob"},
        {"id": "strange", "type": "new_kind"},
        {"type": "new_kind"},
        {"id": "much_too_long_for_a_prefix_really_1", "type": "new_kind"},
        {"id": "averylongprefix_1", "type": "new_kind"},
    ]
    played = told(make_builder(), *items)
    assert len(inside(played)) == 2 * len(items)
    assert inside(played)[0]["item"]["status"] == "in_progress"
    assert inside(played)[2]["item"]["encrypted_content"] == "blob"
    prefixes = [item["id"].rpartition("_")[0] for item in played.final["output"]]
    assert prefixes == ["ig", "cmp", "item", "item", "much", "item"]
    assert without_ids(played.final["output"]) == without_ids(items)


def test_what_is_malformed_is_told_as_it_is() -> None:
    part = {"type": "new_part", "data": 1}
    broken = [
        message(part, {"type": "output_text", "text": None}, "no part"),  # type: ignore[arg-type]
        message(content=None),
        {"id": "ctc_1", "type": "custom_tool_call", "name": "c", "call_id": "call_1"},
    ]
    events = decoded(replay(make_builder(), answer(*broken)).frames)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["part"] for event in events if "part" in event][:2] == [part, part]
    assert events[-1]["response"]["output"][0]["content"] == [
        part,
        text(None),  # type: ignore[arg-type]
    ]


def test_what_servers_leave_out_is_there() -> None:
    bare = {"type": "output_text", "text": "x", "logprobs": None}
    item = message(bare)
    del item["status"]
    played = told(make_builder(), item, call(status=None))
    assert without_ids(played.final["output"]) == without_ids([message(text("x")), call()])


def test_ids_are_new_and_what_is_hidden_goes_with_them() -> None:
    made = answer(
        reasoning(), message(text("x")), reasoning(id="rs_2"), hidden={"rs_2": "b", "gone": "c"}
    )
    before = copy.deepcopy(made)
    builder = make_builder()
    first = replay(builder, made)
    second = replay(make_builder(), made)
    assert [item["id"] for item in first.final["output"]] == ["rs_0002", "msg_0003", "rs_0004"]
    assert first.encrypted_reasoning == second.encrypted_reasoning == {"rs_0004": "b"}
    assert made == before


OWN = {
    "store": False,
    "instructions": "mine",
    "metadata": {"mine": "1"},
    "user": "me",
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "background": False,
    "previous_response_id": "resp_mine",
}
THEIRS = {
    "object": "response",
    "store": True,
    "instructions": "theirs",
    "metadata": {"theirs": "1"},
    "user": "them",
    "prompt_cache_key": "t",
    "safety_identifier": "t",
    "background": True,
    "previous_response_id": "resp_theirs",
    "conversation": {"id": "conv_theirs"},
    "prompt": {"id": "pmpt_theirs"},
    "billing": {"payer": "them"},
    "id": "resp_theirs",
    "created_at": 1,
    "completed_at": 2,
    "status": "failed",
    "error": {"code": "server_error"},
    "output": [1],
}
ANSWERED = {
    "temperature": 0.6,
    "service_tier": "default",
    "tools": [{"type": "function", "name": "g"}],
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "frequency_penalty": 0.0,
}


@pytest.mark.parametrize("muted", [False, True])
def test_who_asked_is_the_drafts_and_the_answer_is_the_answers(muted: bool) -> None:
    builder = make_builder(muted=muted, **OWN)
    played = replay(builder, answer(message(text("x")), fields={**THEIRS, **ANSWERED}))
    final = played.final
    assert final["id"] == builder.id
    assert final["created_at"] == builder.created_at
    assert {name: final[name] for name in OWN} == OWN
    assert {name: final[name] for name in ANSWERED} == ANSWERED
    assert not final.keys() & {"conversation", "prompt", "billing"}
    assert final["model"] == "m-2026"
    assert (final["status"], final["completed_at"], final["error"]) == ("completed", NOW, None)
    if not muted:
        assert rebuilt(decoded(played.frames)) == final


def test_a_conversation_of_ones_own_stays() -> None:
    played = told(
        make_builder(conversation="conv_1", prompt={"id": "pmpt_1"}),
        message(text("x")),
        fields=THEIRS,
    )
    assert played.final["conversation"] == {"id": "conv_1"}
    assert played.final["prompt"] == {"id": "pmpt_1"}


def test_what_the_client_was_told_stays() -> None:
    builder = make_builder()
    opening = builder.open()
    played = replay(builder, answer(message(text("x")), fields=ANSWERED))
    final = check_order(decoded([*opening, *played.frames]))
    told = opening[0].json()["response"]
    assert final["service_tier"] == "default"
    assert {name for name in final if final[name] != told.get(name)} == {
        *("status", "completed_at", "output", "output_text", "usage", "service_tier"),
    }


def test_a_background_run_goes_on_after_its_beginning() -> None:
    echo = make_builder(background=True).echo
    queued = ResponseBuilder(
        echo=echo, own_fields=OWN_FIELDS, new_id=lambda prefix: f"{prefix}1", now=lambda: NOW
    )
    queued.queue()
    builder = ResponseBuilder(
        echo=echo,
        own_fields=OWN_FIELDS,
        new_id=queued.new_id,
        now=queued.now,
        created=(queued.id, NOW),
        first_sequence=2,
    )
    played = replay(builder, answer(message(text("x")), fields=ANSWERED))
    events = decoded(played.frames)
    assert [event["sequence_number"] for event in events] == list(range(2, 2 + len(events)))
    assert events[0]["type"] == "response.in_progress"
    assert played.final["tools"] == []


def test_a_muted_draft_gets_the_object_alone() -> None:
    items = [reasoning(("a",)), message(text("b")), call()]
    whole = replay(make_builder(muted=True), answer(*items, hidden={"rs_old": "blob"}))
    streamed = told(make_builder(), *items, hidden={"rs_old": "blob"})
    assert whole.frames == []
    assert whole.final == streamed.final
    assert whole.encrypted_reasoning == streamed.encrypted_reasoning == {"rs_0002": "blob"}


@pytest.mark.parametrize("muted", [False, True])
def test_the_draft_has_ended_and_can_end_otherwise(muted: bool) -> None:
    builder = make_builder(muted=muted)
    played = replay(builder, answer(message(text("x")), call()))
    assert builder.state is StreamState.ENDED
    assert builder.final is played.final
    last = builder.end_otherwise({**played.final, "store": False})
    if not muted:
        assert last.json()["sequence_number"] == played.frames[-1].json()["sequence_number"]
        assert last.json()["response"] == {**played.final, "store": False}


def test_an_answer_without_output_or_usage() -> None:
    played = told(make_builder(), usage=None)
    assert played.final["output"] == []
    assert played.final["usage"] is None


def test_how_many_tokens_an_event_brings() -> None:
    played = told(
        make_builder(),
        reasoning(("word word ",)),
        message(text("Hi you", logprobs=LOGPROBS), text("word " * 8)),
        custom("\u4e16\u754c"),
    )
    weights = [frame_tokens(frame) for frame in played.frames]
    assert [weight for weight in weights if weight] == [1.25] * 2 + [1.0] * 2 + [1.25] * 8 + [1.5]
    assert frame_tokens(Frame("response.new.delta", b'{"delta":{"a":1}}')) == 0
