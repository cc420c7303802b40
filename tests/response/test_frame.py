"""Frames, and the bytes they are stored as."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from router.response.frame import Frame

_TEXT = st.text().filter(lambda text: text.isprintable())
_TYPES = st.one_of(st.just(""), st.just("response.created"), st.just("data: x"), _TEXT)
_VALUES = st.one_of(st.text(), st.just("\n\nevent: x\ndata: y\n\n"))


@given(st.lists(st.tuples(_TYPES, st.dictionaries(_VALUES, _VALUES))))
def test_stored_frames_come_back(events: list[tuple[str, dict[str, str]]]) -> None:
    frames = [Frame(kind, orjson.dumps(data)) for kind, data in events]
    again = Frame.all_of(b"".join([frame.encode() for frame in frames]))
    assert [(frame.type, frame.data) for frame in again] == [
        (frame.type, frame.data) for frame in frames
    ]
