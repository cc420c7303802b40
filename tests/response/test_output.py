"""What a model says, piece by piece, as items that never overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import UpstreamFailure
from router.response import output
from router.response.output import OutputBuilder
from tests.support.order import check_order
from tests.support.reading import FUZZ, decoded, make_builder, said

Said = list[tuple[str, str]]


class Speaker:
    """An output builder on an open builder, and the stream it writes."""

    def __init__(self, *custom: str) -> None:
        self.builder = make_builder()
        self.out = OutputBuilder(self.builder, frozenset(custom))
        self.out.out.extend(self.builder.open())

    def call(self, key: int, fragment: str = "", name: str | None = None) -> None:
        self.out.call(key, None, name, fragment)

    def begun(self) -> list[str]:
        """The names of the items announced so far."""
        added = [f.json() for f in self.out.out if f.type == "response.output_item.added"]
        return [event["item"].get("name", event["item"]["type"]) for event in added]

    def end(self, status: str = "completed") -> dict[str, Any]:
        self.out.close(status)
        details = {"reason": "max_output_tokens"} if status == "incomplete" else None
        final = self.builder.snapshot(status, self.out.items, None, incomplete_details=details)
        self.out.out.append(self.builder.end(final))
        return check_order(decoded(self.out.out))


def test_every_kind_after_the_other() -> None:
    speaker = Speaker("c")
    speaker.out.say("reasoning", "hm")
    speaker.out.say("text", "A")
    speaker.out.say("text", "B")
    speaker.call(0, '{"a":', "f")
    speaker.call(0, "1}")
    speaker.call(1, '{"input":"x"}', "c")
    speaker.out.say("reasoning", "so")
    speaker.out.say("refusal", "no")
    speaker.out.say("text", "C")
    assert said(speaker.end()) == [
        ("reasoning", "hm"),
        ("text", "AB"),
        ("f", '{"a":1}'),
        ("c", "x"),
        ("reasoning", "so"),
        ("refusal", "no"),
        ("text", "C"),
    ]


def test_interleaved_calls_are_put_in_order() -> None:
    speaker = Speaker()
    speaker.call(0, "", "f")
    speaker.call(1, "", "g")
    for fragment in ('{"a"', ":", "1}"):
        speaker.call(0, fragment)
        speaker.call(1, fragment)
    assert said(speaker.end()) == [("f", '{"a":1}'), ("g", '{"a":1}')]


def test_a_whole_call_gives_way_at_once() -> None:
    speaker = Speaker()
    speaker.call(0, '{"a":', "f")
    speaker.call(1, '{"b":', "g")
    assert speaker.begun() == ["f"]
    speaker.call(0, "1}")
    assert speaker.begun() == ["f", "g"]
    speaker.call(0, "\n")
    speaker.call(1, "2}")
    assert said(speaker.end()) == [("f", '{"a":1}'), ("g", '{"b":2}')]


def test_text_waits_for_a_call_that_is_not_whole() -> None:
    speaker = Speaker()
    speaker.call(0, '{"a":', "f")
    speaker.out.say("text", "be")
    speaker.out.say("text", "side")
    speaker.call(1, "{}", "g")
    assert speaker.begun() == ["f"]
    speaker.call(0, "1}")
    assert speaker.begun() == ["f", "message", "g"]
    speaker.out.say("text", "after")
    assert said(speaker.end()) == [
        ("f", '{"a":1}'),
        ("text", "beside"),
        ("g", "{}"),
        ("text", "after"),
    ]


def test_a_call_waits_for_its_name() -> None:
    speaker = Speaker()
    speaker.out.say("text", "A")
    assert speaker.out.started
    speaker.call(0, '{"a":')
    speaker.call(0, "1")
    assert speaker.begun() == ["message"]
    speaker.call(0, "}", "f")
    assert speaker.begun() == ["message", "f"]
    assert said(speaker.end()) == [("text", "A"), ("f", '{"a":1}')]


def test_a_call_without_a_name_has_not_begun() -> None:
    speaker = Speaker()
    speaker.call(0, '{"a":1}')
    assert not speaker.out.started
    with pytest.raises(UpstreamFailure, match="without a name"):
        speaker.out.close("completed")


def test_a_call_cut_off_before_its_name_is_left_out() -> None:
    speaker = Speaker()
    speaker.call(0, '{"a":1}', "f")
    speaker.call(1, "")
    assert said(speaker.end("incomplete")) == [("f", '{"a":1}')]


def test_empty_arguments_are_an_empty_object() -> None:
    speaker = Speaker()
    speaker.call(0, "", "f")
    speaker.call(1, "", "g")
    assert said(speaker.end()) == [("f", "{}"), ("g", "{}")]


def test_ids_of_calls_are_the_endpoints_or_our_own() -> None:
    speaker = Speaker()
    speaker.out.call(0, "call_x", "f", "{}")
    speaker.out.call(1, None, "g", "{}")
    first, second = speaker.end()["output"]
    assert first["call_id"] == "call_x"
    assert second["call_id"].startswith("call_")


def statuses(final: dict[str, Any]) -> list[str]:
    return [item["status"] for item in final["output"]]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ('{"a":1}', '{"b":', ["completed", "incomplete"]),
        ('{"a":', '{"b":', ["incomplete", "incomplete"]),
        ("", '{"b":', ["completed", "incomplete"]),
    ],
)
def test_what_a_limit_cut_is_incomplete(first: str, second: str, expected: list[str]) -> None:
    speaker = Speaker()
    speaker.call(0, first, "f")
    speaker.call(1, second, "g")
    assert statuses(speaker.end("incomplete")) == expected


def test_arguments_that_are_no_json_are_passed_on() -> None:
    speaker = Speaker()
    speaker.call(0, "nonsense}", "f")
    speaker.call(1, "[1]", "g")
    final = speaker.end()
    assert said(final) == [("f", "nonsense}"), ("g", "[1]")]
    assert statuses(final) == ["completed", "completed"]


def test_whether_a_call_is_whole() -> None:
    speaker = Speaker()
    whole = speaker.out.has_whole
    assert not whole(0)
    speaker.call(0, '{"a":{}', "f")
    assert not whole(0)
    speaker.call(1, "{}")
    assert whole(1)
    speaker.call(0, "} ")
    assert whole(0)
    speaker.call(1, "", "g")
    assert whole(0)


@pytest.mark.parametrize(
    "fill",
    [
        lambda speaker, i: speaker.call(1, "x" * 1000),
        lambda speaker, i: speaker.out.say("text", "x" * 1000),
        lambda speaker, i: speaker.call(i + 1),
    ],
)
def test_what_waits_is_bounded(
    monkeypatch: pytest.MonkeyPatch, fill: Callable[[Speaker, int], None]
) -> None:
    monkeypatch.setattr(output, "MAX_WAITING_CHARS", 20_000)
    speaker = Speaker()
    speaker.call(0, "{", "f")

    def fill_up() -> None:
        for i in range(100):
            fill(speaker, i)

    with pytest.raises(UpstreamFailure, match="more tool call data"):
        fill_up()


def test_what_waited_makes_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MAX_WAITING_CHARS", 20_000)
    speaker = Speaker()
    for key in range(0, 40, 2):
        speaker.call(key, "{", "f")
        speaker.call(key + 1, '{"a":"%s"}' % ("x" * 1000), "g")
        speaker.call(key, "}")
    assert len(said(speaker.end())) == 40


def test_the_output_of_a_broken_answer() -> None:
    speaker = Speaker("c")
    assert speaker.out.partial() == []
    speaker.out.say("text", "A")
    speaker.call(0, '{"input":"one tw', "c")
    frames = len(speaker.out.out)
    text, call = speaker.out.partial()
    assert len(speaker.out.out) == frames
    assert (text["status"], text["content"][0]["text"]) == ("completed", "A")
    assert (call["status"], call["input"]) == ("incomplete", "one tw")


PIECES = st.one_of(
    st.tuples(st.sampled_from(["text", "reasoning", "refusal"]), st.text(min_size=1, max_size=3)),
    st.tuples(st.sampled_from(["0", "1", "2"]), st.sampled_from(['{"a":', "1", "}", "{}", ""])),
)


@given(st.lists(PIECES, max_size=25), st.sampled_from(["completed", "incomplete"]))
@FUZZ
def test_nothing_is_lost_whatever_is_said(pieces: list[tuple[str, str]], status: str) -> None:
    speaker = Speaker()
    for kind, text in pieces:
        if kind.isdigit():
            speaker.call(int(kind), text, f"f{kind}")
        else:
            speaker.out.say(kind, text)
    final = said(speaker.end(status))
    for kind in ("text", "reasoning", "refusal"):
        expected = "".join(text for k, text in pieces if k == kind)
        assert "".join(text for k, text in final if k == kind) == expected
    for key in {kind for kind, _ in pieces if kind.isdigit()}:
        (written,) = [arguments for name, arguments in final if name == f"f{key}"]
        came = "".join(text for kind, text in pieces if kind == key)
        assert came.startswith(written) or (written, came) == ("{}", "")
