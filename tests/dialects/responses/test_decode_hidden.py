"""Encrypted reasoning that the client did not ask for: kept, and never seen."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.responses.decode_stream import ResponsesDecoder
from router.dialects.responses.sealing import seal
from tests.support.native import ACCOUNT, REASONING_ID, answer, begun, events, message, reasoning
from tests.support.reading import (
    BROKEN,
    checked,
    decoded,
    events_of,
    in_bytes,
    make_builder,
    native,
    read_all,
)

BLOB = "gAAAA-a-secret"
SEALED = seal(BLOB, ACCOUNT)
COMPACTION = {"id": "cmp_1", "type": "compaction", "encrypted_content": "a-summary"}


def decoder() -> ResponsesDecoder:
    return ResponsesDecoder(make_builder(), ACCOUNT, hide=True)


def wire(frames: Any) -> bytes:
    return b"".join(frame.encode() for frame in frames)


def test_it_is_in_no_event_and_kept_by_the_items_id() -> None:
    made = events(reasoning(BLOB), message("A"))
    made.insert(4, {"type": "response.something", "item": reasoning(BLOB)})
    made.insert(5, {"type": "response.something", "response": begun(output=[reasoning(BLOB)])})
    stream = native(*made)
    for data in (stream, in_bytes(stream)):
        subject = decoder()
        frames = read_all(subject, data)
        assert BLOB.encode() not in wire(frames)
        assert b"encrypted_content" not in wire(frames)
        assert subject.encrypted_reasoning == {REASONING_ID: SEALED}
        assert subject.final is not None
        assert subject.final["output"] == [reasoning(), message("A")]
        assert decoded(frames)[-1]["response"] == subject.final


def test_the_rest_passes_byte_by_byte() -> None:
    stream = answer(reasoning(BLOB), message("A"))
    without = answer(reasoning(), message("A"))
    assert [f.encode() for f in read_all(decoder(), stream)] == [
        f.encode() for f in read_all(decoder(), without)
    ]


def test_what_the_final_object_says_last_counts() -> None:
    """An item begins with another blob than it ends with."""
    made = events(reasoning("at the end"), message("A"))
    made[2]["item"] = reasoning("at the beginning")
    subject = decoder()
    events_of(subject, native(*made))
    assert subject.encrypted_reasoning == {REASONING_ID: seal("at the end", ACCOUNT)}

    subject = decoder()
    checked(subject, answer(reasoning(BLOB), message("A"), output=[]))
    assert subject.encrypted_reasoning == {REASONING_ID: SEALED}

    subject = decoder()
    checked(subject, answer(reasoning(), output=[reasoning(BLOB)]))
    assert subject.encrypted_reasoning == {REASONING_ID: SEALED}


@pytest.mark.parametrize(
    ("done", "encrypted_reasoning"), [(True, {REASONING_ID: SEALED}), (False, {})]
)
def test_an_answer_that_breaks_off(done: bool, encrypted_reasoning: dict[str, str]) -> None:
    """What an unfinished item carried is not kept: it is not what it would have ended with."""
    made = events(reasoning(BLOB), message("A"))[: 4 if done else 3]
    subject = decoder()
    frames = [*subject.feed(native(*made)), *subject.fail(BROKEN)]
    assert BLOB.encode() not in wire(frames)
    assert subject.encrypted_reasoning == encrypted_reasoning
    assert subject.final is not None
    assert [item["id"] for item in subject.final["output"]] == [REASONING_ID]


def test_a_whole_answer() -> None:
    subject = decoder()
    body = begun(status="completed", output=[reasoning(BLOB), message("A"), COMPACTION])
    shown = subject.whole(orjson.dumps(body))
    assert BLOB.encode() not in shown
    assert orjson.loads(shown)["output"][0] == reasoning()
    assert subject.encrypted_reasoning == {REASONING_ID: SEALED}


@pytest.mark.parametrize("odd", [{"id": None}, {"id": 5}, {"id": ["rs_1"]}])
def test_an_item_without_an_id_gets_one_to_be_kept_by(odd: dict[str, Any]) -> None:
    subject = decoder()
    body = begun(status="completed", output=[{**reasoning(BLOB), **odd}])
    shown = subject.whole(orjson.dumps(body))
    assert BLOB.encode() not in shown
    assert subject.encrypted_reasoning == {orjson.loads(shown)["output"][0]["id"]: SEALED}


def test_a_compaction_is_shown_whoever_asked() -> None:
    """It stands for the history: without it there is nothing to go on from."""
    for hide in (False, True):
        subject = ResponsesDecoder(make_builder(), ACCOUNT, hide=hide)
        made = begun(status="completed", output=[COMPACTION])
        final = orjson.loads(subject.whole(orjson.dumps(made)))
        assert final["output"][0]["encrypted_content"] == seal("a-summary", ACCOUNT)
        assert subject.encrypted_reasoning == {}


@pytest.mark.parametrize("kind", [None, 5, [], ["reasoning"], {"a": 1}])
def test_what_is_no_such_item_passes(kind: Any) -> None:
    item = {"type": kind, "encrypted_content": BLOB}
    shown = orjson.loads(decoder().whole(orjson.dumps(begun(status="completed", output=[item]))))
    assert shown["output"] == [item]


def test_nothing_is_hidden_from_who_asked() -> None:
    subject = ResponsesDecoder(make_builder(), ACCOUNT)
    final = checked(subject, answer(reasoning(BLOB), message("A")))
    assert final["output"][0]["encrypted_content"] == SEALED
    assert subject.encrypted_reasoning == {}
