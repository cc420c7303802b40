"""Item ids of endpoints that repeat theirs in every answer, or leave them out."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.responses.decode_stream import ResponsesDecoder
from router.dialects.responses.item_ids import is_plainly_unique
from tests.support.native import ACCOUNT, UNIQUE, answer, begun, call, decoder, events, message
from tests.support.reading import (
    BROKEN,
    checked,
    decoded,
    in_bytes,
    make_builder,
    native,
    read_all,
)

CALL = call("f", '{"a":1}')
LACKING = {k: v for k, v in call("g", "{}").items() if k != "id"}


def named(item: dict[str, Any], ident: Any) -> dict[str, Any]:
    return {**item, "id": ident}


ANSWERS: dict[str, tuple[dict[str, Any], ...]] = {
    "a counter": (named(message("A"), "msg_1"),),
    "a fixed word": (named(message("A"), "msg_message"),),
    "zeros": (named(message("A"), "msg_00000000000000000001"),),
    "a number at random": (named(CALL, "fc_resp_482913"),),
    "no text": (named(message("A"), 5),),
    "empty": (named(message("A"), ""),),
    "one id for all": (named(message("A"), "x"), named(CALL, "x"), named(message("B"), "x")),
    "a unique one twice": (message("A"), named(message("B"), message("A")["id"])),
    "a later one": (message("A"), named(CALL, "fc_1"), message("B")),
}


def streamed_ids(made: list[dict[str, Any]]) -> list[list[Any]]:
    """For each item of the output, in order, every id that the events name it by."""
    found: dict[int, list[Any]] = {}
    for event in made:
        if "output_index" in event:
            ident = event["item"]["id"] if "item" in event else event["item_id"]
            found.setdefault(event["output_index"], []).append(ident)
    return [found[place] for place in sorted(found)]


def check_one_id_each(made: list[dict[str, Any]]) -> list[str]:
    """That every event and the final object agree; returns the ids."""
    final = [item["id"] for item in made[-1]["response"]["output"]]
    assert [set(ids) for ids in streamed_ids(made)] == [{ident} for ident in final]
    assert len(set(final)) == len(final)
    return final


@pytest.mark.parametrize("case", ANSWERS)
@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_every_event_names_the_new_id(case: str, size: int) -> None:
    items = ANSWERS[case]
    stream = answer(*items)
    made = decoded(read_all(decoder(), in_bytes(stream, size)))
    ids = check_one_id_each(made)
    output = made[-1]["response"]["output"]
    assert output == [named(item, ident) for item, ident in zip(items, ids, strict=True)]
    stays = case in ("a unique one twice", "a later one")
    assert (ids[0] == items[0]["id"]) is stays
    if stays:
        assert ids[1] != items[1]["id"]


@pytest.mark.parametrize("case", ANSWERS)
def test_a_whole_answer(case: str) -> None:
    items = ANSWERS[case]
    body = begun(status="completed", output=list(items))
    output = orjson.loads(decoder().whole(orjson.dumps(body)))["output"]
    ids = [item["id"] for item in output]
    assert len(set(ids)) == len(ids)
    assert ids != [item["id"] for item in items]
    assert output == [{**item, "id": i} for item, i in zip(items, ids, strict=True)]


def test_the_order_is_checked_like_any_answers() -> None:
    checked(decoder(), answer(*ANSWERS["one id for all"]))


@pytest.mark.parametrize("name", [None, "call_g"])
def test_an_item_without_an_id_gets_one(name: str | None) -> None:
    """llama.cpp's calls have none, and their events name the call."""
    made = events(message("A"), call("g", "{}"))
    for event in made:
        if event.get("output_index") == 1:
            event.get("item", {}).pop("id", None)
            if event.pop("item_id", None) and name is not None:
                event["item_id"] = name
    made[-1]["response"]["output"][1] = LACKING
    ids = check_one_id_each(decoded(read_all(decoder(), native(*made))))
    assert ids[0] == message("A")["id"]
    assert ids[1].startswith("fc_")


def test_an_answer_that_only_names_items_by_id() -> None:
    """Only the beginnings say where they belong."""
    made = events(named(message("A"), "msg_1"), named(CALL, "fc_1"))
    for event in made:
        if event["type"] != "response.output_item.added":
            event.pop("output_index", None)
    told = decoded(read_all(decoder(), native(*made)))
    ids = [item["id"] for item in told[-1]["response"]["output"]]
    begins = [place for place, e in enumerate(told) if e["type"] == "response.output_item.added"]
    parts = (told[begins[0] : begins[1]], told[begins[1] : -1])
    for ident, part in zip(ids, parts, strict=True):
        assert {e["item"]["id"] if "item" in e else e["item_id"] for e in part} == {ident}


def test_an_id_of_the_history_is_not_given_again() -> None:
    taken = message("A")
    made = {}
    for history in ((), {taken["id"]}):
        subject = ResponsesDecoder(make_builder(), ACCOUNT, taken=history)
        told = decoded(read_all(subject, answer(taken)))
        made[bool(history)] = check_one_id_each(told)
    assert made[False] == [taken["id"]]
    assert made[True] != [taken["id"]]


def test_a_final_output_left_out_has_the_ids_of_the_stream() -> None:
    stream = answer(named(message("A"), "msg_1"), output=[])
    check_one_id_each(decoded(read_all(decoder(), stream)))


def test_an_answer_that_breaks_off_keeps_its_ids() -> None:
    subject = decoder()
    told = decoded(subject.feed(answer(named(message("A"), "msg_1"), end=None)))
    told += decoded(subject.fail(BROKEN))
    check_one_id_each(told)


def test_a_snapshot_in_mid_stream_begins_nothing() -> None:
    made = events(message("A"))
    made.insert(2, {"type": "response.something", "response": begun(output=[message("A")])})
    ids = check_one_id_each(decoded(read_all(decoder(), native(*made))))
    assert ids == [message("A")["id"]]


def test_unique_ids_pass_byte_by_byte() -> None:
    stream = answer(message("A"), CALL)
    ours = [frame.encode().rstrip() for frame in read_all(decoder(), stream)]
    assert ours[2:-1] == stream.split(b"\n\n")[2:-2]


@pytest.mark.parametrize(
    ("ident", "unique"),
    [
        ("msg_68f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7", True),
        ("msg_3f2a9c1d7b5e4086", True),
        ("0b6ad4f5-27b1-4f0e-9f0c-2d1f4b7a9e33", True),
        (UNIQUE, True),
        ("msg_1", False),
        ("msg_0002", False),
        ("msg_resp_999999", False),
        ("msg_aaaaaaaaaaaaaaaaaaaa", False),
        ("msg_00000000000000000012", False),
        ("", False),
    ],
)
def test_what_is_plainly_unique(ident: str, unique: bool) -> None:
    assert is_plainly_unique(ident) is unique
