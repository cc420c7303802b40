"""Lines of JSON, cut out of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects import ndjson
from router.dialects.ndjson import NDJSONDecoder
from router.response.frame import EventTooLarge
from tests.support.reading import FUZZ, in_bytes

CASES: dict[str, tuple[bytes, list[bytes], list[bytes]]] = {
    "one": (b"{}\n", [b"{}"], []),
    "two": (b'{"a":1}\n{}\n', [b'{"a":1}', b"{}"], []),
    "no newline at the end": (b"{}\n[1]", [b"{}"], [b"[1]"]),
    "blank lines": (b"\n  \n{}\n\r\n\t", [b"{}"], []),
    "crlf": (b"{}\r\n{}\r\n", [b"{}\r", b"{}\r"], []),
    "a cut character": ('"ö"\n"é"'.encode(), ['"ö"'.encode()], ['"é"'.encode()]),
    "nothing": (b"", [], []),
}


def decode(*reads: bytes) -> tuple[list[bytes], list[bytes]]:
    decoder = NDJSONDecoder()
    lines = [line for read in reads for line in decoder.decode(read)]
    return lines, decoder.flush()


@pytest.mark.parametrize("case", CASES)
def test_lines_are_cut_out(case: str) -> None:
    data, lines, rest = CASES[case]
    assert decode(data) == (lines, rest)
    assert decode(*in_bytes(data)) == (lines, rest)
    for cut in range(len(data)):
        assert decode(data[:cut], b"", data[cut:]) == (lines, rest)


@given(st.binary(max_size=80), st.integers(1, 9))
@FUZZ
def test_any_bytes_in_any_reads(data: bytes, size: int) -> None:
    data = data.replace(b"\x00", b"\n")
    assert decode(*in_bytes(data, size)) == decode(data)


def test_the_last_line_is_given_out_once() -> None:
    decoder = NDJSONDecoder()
    assert decoder.decode(b"{}") == []
    assert (decoder.flush(), decoder.flush()) == ([b"{}"], [])


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndjson, "MAX_EVENT_BYTES", 100)
    decoder = NDJSONDecoder()
    assert decoder.decode(b"x" * 100) == []
    with pytest.raises(EventTooLarge, match="exceeds 100 bytes"):
        decoder.decode(b"x")
    with pytest.raises(EventTooLarge):
        NDJSONDecoder().decode(b"{}\n" + b"x" * 101)
