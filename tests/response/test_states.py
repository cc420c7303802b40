"""The life of a translated stream, and the builder that lives it."""

from __future__ import annotations

from itertools import product

import pytest

from router.errors import UpstreamFailure
from router.response.builder import LEGAL, IllegalTransition, StreamState
from router.response.tokens import response_usage
from tests.support.order import check_order
from tests.support.reading import NOW, decoded, make_builder


@pytest.mark.parametrize(("now", "wanted"), list(product(StreamState, StreamState)))
def test_only_what_the_table_has_is_allowed(now: StreamState, wanted: StreamState) -> None:
    builder = make_builder()
    builder.state = now
    if wanted in LEGAL[now]:
        builder.advance(wanted)
        assert builder.state is wanted
    else:
        with pytest.raises(IllegalTransition, match=f"{now.value} -> {wanted.value}"):
            builder.advance(wanted)
        assert builder.state is now


def test_the_table_is_whole() -> None:
    assert set(LEGAL) == set(StreamState)
    reached = {state for states in LEGAL.values() for state in states}
    assert reached == set(StreamState) - {StreamState.NEW}
    assert [state for state in StreamState if not LEGAL[state]] == [StreamState.ENDED]
    assert all(
        StreamState.ENDED in LEGAL[state]
        for state in StreamState
        if state not in (StreamState.NEW, StreamState.ENDED)
    )


def test_a_response_is_opened_once() -> None:
    builder = make_builder()
    frames = builder.open()
    assert builder.open() == []
    frames.append(builder.end(builder.snapshot("completed", [], None)))
    final = check_order(decoded(frames))
    assert (final["id"], final["created_at"]) == ("resp_0001", NOW)
    with pytest.raises(IllegalTransition):
        builder.end(builder.snapshot("completed", [], None))


def test_only_a_completed_response_has_its_time() -> None:
    builder = make_builder()
    assert builder.snapshot("completed", [], None)["completed_at"] == NOW
    assert builder.snapshot("incomplete", [], None)["completed_at"] is None
    assert builder.snapshot("failed", [], None)["completed_at"] is None


@pytest.mark.parametrize("opened", [False, True])
def test_a_response_fails_from_any_state_once(*, opened: bool) -> None:
    builder = make_builder()
    frames = builder.open() if opened else []
    output = [{"type": "message", "content": [{"type": "output_text", "text": "half"}]}]
    usage = response_usage(3, 1)
    ending = builder.fail(UpstreamFailure("gone"), output, usage)
    frames += ending
    assert [frame.type for frame in frames] == [
        "response.created",
        "response.in_progress",
        "response.failed",
    ]
    assert [frame.json()["sequence_number"] for frame in frames] == [0, 1, 2]
    final = builder.final
    assert final is not None
    assert final == frames[-1].json()["response"]
    assert (final["status"], final["error"]) == ("failed", UpstreamFailure("gone").response_error())
    assert (final["output"], final["output_text"], final["usage"]) == (output, "half", usage)
    assert final["completed_at"] is None
    assert builder.fail(UpstreamFailure("again"), []) == []
    assert builder.final is final


def test_what_a_client_was_shown_is_in_the_failure() -> None:
    builder = make_builder()
    shown = {**builder.snapshot("in_progress"), "model": "as-shown", "extra": 1}
    last = builder.fail(UpstreamFailure("gone"), [], base=shown)[-1].json()["response"]
    assert (last["model"], last["extra"], last["status"]) == ("as-shown", 1, "failed")


def test_a_muted_draft_lives_without_events() -> None:
    builder = make_builder(muted=True)
    assert builder.open() == []
    assert builder.state is StreamState.OPENED
    assert builder.event("response.x", {}).data == b"{}"
    assert builder.sequence == 0


def test_what_was_not_delivered_is_forgotten() -> None:
    builder = make_builder()
    builder.created_at = NOW - 5
    builder.open({**builder.snapshot("in_progress"), "tools": ["theirs"]})
    assert builder.snapshot("in_progress")["tools"] == ["theirs"]
    builder.advance(StreamState.ITEM)
    builder.event("response.x", {})
    builder.rewind()
    assert (builder.state, builder.sequence, builder.created_at) == (StreamState.NEW, 0, NOW)
    assert builder.snapshot("in_progress")["tools"] == []
    assert [frame.json()["sequence_number"] for frame in builder.open()] == [0, 1]


def test_what_was_delivered_stays() -> None:
    builder = make_builder()
    builder.created_at = NOW - 5
    builder.open({**builder.snapshot("in_progress"), "tools": ["theirs"]})
    builder.delivered = True
    # Made, but never given out: an answer in one piece that proves to be broken.
    builder.advance(StreamState.ITEM)
    builder.event("response.x", {})
    builder.rewind()
    assert (builder.state, builder.sequence, builder.created_at) == (StreamState.OPENED, 2, NOW - 5)
    assert builder.open() == []
    assert builder.snapshot("in_progress")["tools"] == ["theirs"]
