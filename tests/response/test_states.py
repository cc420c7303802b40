"""The life of a translated stream, and the draft that lives it."""

from __future__ import annotations

from itertools import product

import pytest

from router.response.states import LEGAL, IllegalTransition, State, advance
from tests.support.order import check_order
from tests.support.reading import NOW, decoded, make_draft


@pytest.mark.parametrize(("now", "wanted"), list(product(State, State)))
def test_only_what_the_table_has_is_allowed(now: State, wanted: State) -> None:
    if wanted in LEGAL[now]:
        assert advance(now, wanted) is wanted
    else:
        with pytest.raises(IllegalTransition, match=f"{now.value} -> {wanted.value}"):
            advance(now, wanted)


def test_the_table_is_whole() -> None:
    assert set(LEGAL) == set(State)
    reached = {state for states in LEGAL.values() for state in states}
    assert reached == set(State) - {State.NEW}
    assert [state for state in State if not LEGAL[state]] == [State.ENDED]
    assert all(
        State.ENDED in LEGAL[state] for state in State if state not in (State.NEW, State.ENDED)
    )


def test_a_response_is_opened_once() -> None:
    draft = make_draft()
    frames = draft.open()
    assert draft.open() == []
    frames.append(draft.end(draft.finished("completed", [], None)))
    final = check_order(decoded(frames))
    assert (final["id"], final["created_at"]) == ("resp_0001", NOW)
    with pytest.raises(IllegalTransition):
        draft.end(draft.finished("completed", [], None))


def test_only_a_completed_response_has_its_time() -> None:
    draft = make_draft()
    assert draft.finished("completed", [], None)["completed_at"] == NOW
    assert draft.finished("incomplete", [], None)["completed_at"] is None
    assert draft.finished("failed", [], None)["completed_at"] is None


def test_a_muted_draft_lives_without_events() -> None:
    draft = make_draft(muted=True)
    assert draft.open() == []
    assert draft.state is State.OPENED
    assert draft.event("response.x", {}).data == b"{}"
    assert draft.sequence == 0


def test_what_was_not_delivered_is_forgotten() -> None:
    draft = make_draft()
    draft.created_at = NOW - 5
    draft.open({**draft.snapshot("in_progress"), "tools": ["theirs"]})
    assert draft.snapshot("in_progress")["tools"] == ["theirs"]
    draft.advance(State.ITEM)
    draft.event("response.x", {})
    draft.rewind()
    assert (draft.state, draft.sequence, draft.created_at) == (State.NEW, 0, NOW)
    assert draft.snapshot("in_progress")["tools"] == []
    assert [frame.json()["sequence_number"] for frame in draft.open()] == [0, 1]


def test_what_was_delivered_stays() -> None:
    draft = make_draft()
    draft.created_at = NOW - 5
    draft.open({**draft.snapshot("in_progress"), "tools": ["theirs"]})
    draft.delivered = True
    # Made, but never given out: an answer in one piece that proves to be broken.
    draft.advance(State.ITEM)
    draft.event("response.x", {})
    draft.rewind()
    assert (draft.state, draft.sequence, draft.created_at) == (State.OPENED, 2, NOW - 5)
    assert draft.open() == []
    assert draft.snapshot("in_progress")["tools"] == ["theirs"]
