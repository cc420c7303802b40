"""Server-sent events, cut out of bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.response import frame
from router.response.frame import EventTooLarge, Frame, SSEDecoder, encode_event
from tests.support.reading import FUZZ, in_bytes

CASES: dict[str, tuple[bytes, list[bytes]]] = {
    "one": (b"data: a\n\n", [b"a"]),
    "two": (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    "named": (b"event: x\ndata: a\n\n", [b"a"]),
    "name last": (b"data: a\nevent: x\n\n", [b"a"]),
    "id and retry": (b"id: 1\nretry: 5\ndata: a\n\n", [b"a"]),
    "no space": (b"data:a\n\n", [b"a"]),
    "only one space is taken": (b"data:  a \n\n", [b" a "]),
    "several lines": (b"data: a\ndata:b\ndata: c\n\n", [b"a\nb\nc"]),
    "several lines, one empty": (b"data: a\ndata:\ndata: b\n\n", [b"a\n\nb"]),
    "crlf": (b"event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    "cr": (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    "mixed ends": (b"data: a\r\n\ndata: b\n\r\ndata: c\r\n\r", [b"a", b"b", b"c"]),
    "comment": (b": hello\n\ndata: a\n\n", [b"a"]),
    "comment inside": (b": hello\ndata: a\n: data: x\n\n", [b"a"]),
    "comment that looks like data": (b":data: a\n\n", []),
    "data in a name": (b"event: data: x\ndata: a\n\n", [b"a"]),
    "data in data": (b"data: data: a\n\n", [b"data: a"]),
    "another field": (b"metadata: x\ndata: a\n\n", [b"a"]),
    "no data": (b"event: x\n\ndata: a\n\n", [b"a"]),
    "empty data": (b"data:\n\ndata: \n\ndata\n\ndata: a\n\n", [b"a"]),
    "many blank lines": (b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n\n", [b"a", b"b"]),
    "unfinished": (b"data: a\n\ndata: b\n", [b"a"]),
    "unfinished line": (b"data: a\n\ndata: b", [b"a"]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
    "the mark counts only once": (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [b"a"]),
    "not utf-8": (b"data: \xff\xfe\n\n", [b"\xff\xfe"]),
    "a cut character": ("data: ö\n\n".encode(), ["ö".encode()]),
    "nul": (b"data: \x00\n\n", [b"\x00"]),
    "nothing": (b"", []),
}


def decode(*reads: bytes) -> list[bytes]:
    decoder = SSEDecoder()
    return [event for read in reads for event in decoder.decode(read)]


@pytest.mark.parametrize("case", CASES)
def test_events_are_cut_out(case: str) -> None:
    data, events = CASES[case]
    assert decode(data) == events


@pytest.mark.parametrize("case", CASES)
def test_reads_may_end_anywhere(case: str) -> None:
    data, events = CASES[case]
    assert decode(*in_bytes(data)) == events
    assert decode(*in_bytes(data, 3)) == events
    for cut in range(len(data)):
        assert decode(data[:cut], b"", data[cut:]) == events


@given(
    st.lists(
        st.sampled_from([b"data: a", b"data:", b":", b"\r", b"\n", b"\r\n", b"x", b"event: e"])
    ),
    st.lists(st.integers(0, 60)),
)
@FUZZ
def test_any_lines_in_any_reads(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    edges = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    reads = [data[a:b] for a, b in pairwise(edges)]
    assert decode(*reads) == decode(data)


def test_an_event_is_given_out_with_its_last_byte() -> None:
    for end in (b"\n\n", b"\r\r", b"\r\n\r\n"):
        decoder = SSEDecoder()
        *before, last = in_bytes(b"data: a" + end)
        assert [event for read in before[:-1] for event in decoder.decode(read)] == []
        assert [*decoder.decode(before[-1]), *decoder.decode(last)] == [b"a"]


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "MAX_EVENT_BYTES", 100)
    decoder = SSEDecoder()
    assert decoder.decode(b"data: " + b"x" * 94) == []
    with pytest.raises(EventTooLarge, match="exceeds 100 bytes"):
        decoder.decode(b"x")
    with pytest.raises(EventTooLarge):
        SSEDecoder().decode(b"x" * 101)


def test_what_is_encoded_is_decoded() -> None:
    stream = encode_event("a.b", b'{"x":1}') + frame.COMMENT + encode_event("", b"[DONE]")
    assert stream == b'event: a.b\ndata: {"x":1}\n\n: keep-alive\n\ndata: [DONE]\n\n'
    assert decode(stream) == [b'{"x":1}', b"[DONE]"]


def test_a_frame_decodes_its_json_once() -> None:
    frame = Frame("a", b'{"type":"a"}')
    assert frame.json() is frame.json()
    assert frame.encode() == b'event: a\ndata: {"type":"a"}\n\n'
    made = Frame.of({"type": "b", "x": "ö"})
    assert (made.type, made.data) == ("b", '{"type":"b","x":"ö"}'.encode())
    assert made.json() == {"type": "b", "x": "ö"}
    assert repr(made) == "Frame('b', 21 bytes)"
