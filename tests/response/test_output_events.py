"""However little of a response is streamed, everything it says is told once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from router.response.frame import Frame
from router.response.output_events import OutputEvents
from tests.support import native as natives

ITEMS = [
    natives.reasoning(),
    natives.message("One", "Two"),
    natives.call("f", '{"a":1}'),
    natives.message("Three"),
]
DELTAS = (".delta",)
JSON = Any


class Heard:
    """What a listener is told, joined by item and part."""

    def __init__(self) -> None:
        self.texts: dict[Any, str] = {}
        self.done: list[Any] = []
        self.calls: list[str] = []
        self.end = ""

    def response_opened(self, response: dict[str, Any]) -> None:
        pass

    def item_added(self, place: int | str, item: dict[str, Any]) -> None: ...

    def text(
        self, place: Any, part: int, kind: str, piece: str, logprobs: Any, *, whole: bool
    ) -> None:
        assert not (whole and (place, part) in self.texts)
        self._add((place, part), piece)

    def reasoning(self, place: Any, source: str, part: int, piece: str) -> None:
        self._add((place, source, part), piece)

    def call(self, place: Any, item: dict[str, Any]) -> None:
        self.calls.append(item["name"])

    def arguments(self, place: Any, piece: str) -> None:
        self._add((place, "arguments"), piece)

    def item_done(self, place: Any, item: dict[str, Any]) -> None:
        self.done.append(item)

    def response_done(self, response: dict[str, Any]) -> None:
        self.end = response["status"]

    def response_failed(self, response: dict[str, Any]) -> None:
        self.end = "failed"

    def _add(self, where: Any, piece: str) -> None:
        assert piece
        self.texts[where] = self.texts.get(where, "") + piece


def heard(events: list[dict[str, Any]]) -> Heard:
    listener = Heard()
    OutputEvents(listener).feed([Frame.of(event) for event in events])
    return listener


EVENTS = natives.events(*ITEMS)
WHOLE = heard(EVENTS)


def test_everything_is_told() -> None:
    assert [item["type"] for item in WHOLE.done] == [item["type"] for item in ITEMS]
    assert WHOLE.calls == ["f"]
    assert WHOLE.end == "completed"
    assert {"One", "Two", "Three", '{"a":1}'} <= set(WHOLE.texts.values())


@given(st.sets(st.integers(0, len(EVENTS) - 2)))
def test_whatever_is_not_streamed(left_out: set[int]) -> None:
    """Of each part the end may be missing, of each item any event: a piece in the midst may not."""
    missing: set[Any] = set()
    kept = []
    for index, event in enumerate(EVENTS):
        where = (event.get("output_index"), event.get("content_index"), event.get("summary_index"))
        if index in left_out or (event["type"].endswith(DELTAS) and where in missing):
            missing.add(where)
        else:
            kept.append(event)
    found = heard(kept)
    assert found.texts == WHOLE.texts
    assert found.calls == WHOLE.calls
    assert found.end == "completed"


def test_nothing_is_told_after_the_end() -> None:
    again = heard([*EVENTS, *EVENTS])
    assert again.texts == WHOLE.texts


@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(sorted({event["type"] for event in EVENTS}))},
            optional=dict.fromkeys(
                ("output_index", "item_id", "content_index", "delta", "item", "response"),
                st.one_of(
                    st.none(), st.integers(0, 2), st.text(max_size=2), st.sampled_from(ITEMS)
                ),
            ),
        ),
        max_size=8,
    )
)
def test_what_makes_no_sense_is_passed_over(events: list[dict[str, Any]]) -> None:
    listener = Heard()
    told = OutputEvents(listener)
    told.feed([Frame.of(e) for e in events if e["type"] != "response.completed"])
