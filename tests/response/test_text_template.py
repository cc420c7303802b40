"""What is learned of one event, and recognised in others."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.response.frame import EncodedFrame, Frame
from router.response.text_template import PassedText, TextTemplate

Event = dict[str, Any]


def find(event: Event) -> tuple[Event, str]:
    return event, "delta"


def block(event: Event, name: str = "") -> bytes:
    return Frame(name, orjson.dumps(event)).encode()


def learned(event: Event) -> TextTemplate | None:
    return TextTemplate.of(block(event), find)


@pytest.mark.parametrize("literal", ["%", "%d", "%%d", "%(number)d", 'ö\n"\\', "{}[]"])
@pytest.mark.parametrize("order", [("number", "delta"), ("delta", "number"), ("delta",)])
def test_another_text_and_number_are_recognised(literal: str, order: tuple[str, ...]) -> None:
    def event(text: str, number: int) -> Event:
        values = {"number": ("sequence_number", number), "delta": ("delta", text)}
        return {"a": literal, **dict(values[name] for name in order), "z": [literal]}

    template = learned(event("one", 7))
    assert template is not None
    for text in ("", "two", literal, '","delta":"'):
        assert template.text(block(event(text, 12)), 12) == text
        assert orjson.loads(template.raw) == text
    if "number" in order:
        assert template.text(block(event("two", 13)), 12) is None


@pytest.mark.parametrize(
    "other",
    [
        {"type": "u", "delta": "a"},
        {"type": "t", "delta": 1},
        {"type": "t", "delta": None},
        {"type": "t", "delta": ["a"]},
        {"type": "t", "delta": "a", "more": 1},
        {"delta": "a", "type": "t"},
        {"type": "t"},
    ],
)
def test_any_other_event_is_not_recognised(other: Event) -> None:
    template = learned({"type": "t", "delta": "a"})
    assert template is not None
    assert template.text(block(other)) is None


@pytest.mark.parametrize(
    "data",
    [
        b'{"delta":"a","delta":"a"}',
        b'{"delta":"a","d\\u0065lta":"a"}',
        b'{"delta":"a","sequence_number":1,"sequence_number":1}',
        b'{"delta":"a","sequence_number":1.5}',
        b'{"delta":"a","x":{"delta":"b"}}',
        b'{"delta":"a","x":{"sequence_number":1},"sequence_number":1}',
        b'{"delta":"a","x":"' + b"x" * 5000 + b'"}',
    ],
)
def test_what_is_not_plain_is_not_learned(data: bytes) -> None:
    assert TextTemplate.of(b"data: " + data + b"\n\n", find) is None


@pytest.mark.parametrize("raw", [b"a", b'a"b', b"a\\x", b"a\nb", b"\xff", b"\\ud800", b'a","b":"c'])
def test_what_is_no_text_is_not_recognised(raw: bytes) -> None:
    template = learned({"type": "t", "delta": "a"})
    assert template is not None
    assert (template.text(b'data: {"type":"t","delta":"%b"}\n\n' % raw) == "a") == (raw == b"a")


def test_padding_may_differ() -> None:
    template = learned({"delta": "a", "obfuscation": "xY1"})
    assert template is not None
    assert template.text(block({"delta": "b", "obfuscation": "z"})) == "b"
    for padding in ("", "-", '"', 'a","b":"c'):
        assert template.text(block({"delta": "b", "obfuscation": padding})) is None
    assert template.text(block({"delta": "b"})) is None


def test_what_passes_unchanged_is_not_copied() -> None:
    event = {"type": "t", "sequence_number": 4, "delta": "a"}
    passed = PassedText.of(block(event, "t"), Frame.of(event), find, encoded=True)
    assert passed is not None
    wire = block({**event, "sequence_number": 5, "delta": "\u00e9"}, "t")
    frame = passed.frame(wire, 5)
    assert isinstance(frame, EncodedFrame)
    assert frame.encode() is wire
    assert (frame.type, frame.data, frame.json()["delta"]) == ("t", wire[15:-2], "é")
    assert passed.frame(wire, 6) is None


def test_what_is_changed_is_changed_alike() -> None:
    theirs = {"type": "t", "delta": "a", "id": "1", "sequence_number": 9, "obfuscation": "x"}
    mine = {**theirs, "id": "2", "sequence_number": 4}
    passed = PassedText.of(block(theirs), Frame.of(mine), find, encoded=True)
    assert passed is not None
    escaped = block({**theirs, "sequence_number": 10, "obfuscation": "yz"})
    frame = passed.frame(escaped.replace(b'"a"', b'"\\u00e9\\/"'), 5)
    assert frame is not None
    expected = {**mine, "delta": "é/", "sequence_number": 5, "obfuscation": "yz"}
    assert frame.encode() == Frame.of(expected).encode()
    assert (passed.text, passed.raw) == ("é/", b'"\\u00e9\\/"')


def test_an_event_that_says_something_else_than_it_came_with_is_not_learned() -> None:
    theirs = {"type": "t", "delta": "a"}
    assert (
        PassedText.of(block(theirs), Frame.of({**theirs, "delta": "b"}), find, encoded=True) is None
    )


def test_other_attributes_of_a_frame_are_missing() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        EncodedFrame("t", b"event: t\ndata: {}\n\n").nothing  # noqa: B018
