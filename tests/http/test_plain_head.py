"""Heads that are read without aiohttp: only those that can be read in one way."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final
from unittest import mock

import pytest
from aiohttp.http import SERVER_SOFTWARE
from aiohttp.http_parser import HttpRequestParserPy
from hypothesis import given
from hypothesis import strategies as st

from router.http.plain_head import parse_head, render_head

_PLAIN: Final = b"POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n"


_NAMES: Final = ("Host", "Content-Length", "X-A", "x-a", "Transfer-Encoding", "X\0", "A B", "")
_VALUES: Final = ("1", " 12\t", "close", "keep-alive", "chunked", "a\rb", "\n", "é")


def _head(*fields: str, line: str = "POST /v1/responses HTTP/1.1") -> bytes:
    return "\r\n".join([line, *fields, "", ""]).encode("latin-1")


def test_a_plain_head() -> None:
    head = parse_head(_head("Host: a", "content-length:\t 12 ", "X-A: 1", "x-a:2", "X-Empty:"))
    assert head is not None
    assert (head.raw_path, head.length, head.close) == ("/v1/responses", 12, False)
    assert head.headers.getall("X-A") == ["1", "2"]
    assert head.headers["x-empty"] == ""


@pytest.mark.parametrize(("value", "close"), [("close", True), ("Keep-Alive", False)])
def test_whether_it_is_the_last(value: str, close: bool) -> None:
    head = parse_head(_head("Host: a", "Content-Length: 1", f"Connection: {value}"))
    assert head is not None
    assert head.close is close


@pytest.mark.parametrize(
    "fields",
    [
        ["Content-Length: 1", "Content-Length: 1"],
        ["Content-Length: 1", "content-length: 2"],
        ["Content-Length: 1", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked"],
        ["Content-Length: +1"],
        ["Content-Length: 1_0"],
        ["Content-Length: ٣".encode().decode("latin-1")],
        ["Content-Length: 0x1"],
        ["Content-Length: 1, 1"],
        ["Content-Length: "],
        ["Content-Length: 9999999999999999"],
        ["Content-Length: 1", "Host: b"],
        ["Content-Length: 1", "Expect: 100-continue"],
        ["Content-Length: 1", "Upgrade: websocket"],
        ["Content-Length: 1", "Content-Encoding: gzip"],
        ["Content-Length: 1", "Connection: keep-alive, upgrade"],
        ["Content-Length: 1", "Connection: close", "Connection: keep-alive"],
        ["Content-Length: 1", " folded: 1"],
        ["Content-Length: 1", "X: a", "\tb"],
        ["Content-Length : 1"],
        ["Content-Length: 1", "X Y: 1"],
        ["Content-Length: 1", ": 1"],
        ["Content-Length: 1", "X: a\0b"],
        ["Content-Length: 1", "X: a\rb"],
        ["Content-Length: 1", "X: a\nTransfer-Encoding: chunked"],
        ["Content-Length: 1", "X: \x7f"],
        ["Content-Length: 1", "no colon"],
        [],
    ],
)
def test_what_is_left_to_aiohttp(fields: list[str]) -> None:
    assert parse_head(_head("Host: a", *fields)) is None


@pytest.mark.parametrize(
    "line",
    [
        "GET /v1/responses HTTP/1.1",
        "post /v1/responses HTTP/1.1",
        "POST /v1/responses HTTP/1.0",
        "POST /v1/responses HTTP/2.0",
        "POST  /v1/responses HTTP/1.1",
        "POST /v1/responses  HTTP/1.1",
        "POST /v1/a b HTTP/1.1",
        "POST /v1/\xe9 HTTP/1.1",
        "POST http://a/v1/responses HTTP/1.1",
        "POST * HTTP/1.1",
        "POST /v1/responses",
        "",
    ],
)
def test_first_lines_that_are_left_to_aiohttp(line: str) -> None:
    assert parse_head(_head("Host: a", "Content-Length: 1", line=line)) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(_NAMES),
            st.one_of(
                st.sampled_from(_VALUES), st.text(st.characters(max_codepoint=255), max_size=6)
            ),
        ),
        max_size=5,
    ),
    st.sampled_from(["\r\n", "\n", "\r", "\r\n "]),
)
def test_aiohttp_reads_the_same(fields: list[tuple[str, str]], end: str) -> None:
    """Whatever is read here, aiohttp's own parser takes for the very same request."""
    text = f"POST /v1/responses HTTP/1.1{end}Host: a\r\nContent-Length: 7\r\n"
    text += "".join(f"{name}:{value}{end}" for name, value in fields) + "\r\n"
    raw = text.encode("latin-1")
    head = parse_head(raw)
    if head is None:
        return
    protocol = mock.Mock(_reading_paused=False)
    loop: Any = mock.Mock(spec=asyncio.AbstractEventLoop)
    parser = HttpRequestParserPy(protocol, loop, limit=2**16, max_field_size=2**16)
    messages, upgraded, tail = parser.feed_data(raw)
    [(message, _)] = messages
    assert not upgraded
    assert tail == b""
    assert message.path == head.raw_path
    assert message.should_close is head.close
    assert not message.chunked
    assert list(message.headers.items()) == list(head.headers.items())
    assert message.headers["Content-Length"] == str(head.length) or head.length == int(
        message.headers["Content-Length"]
    )


@given(st.integers(0, len(_PLAIN) - 1), st.binary(min_size=1, max_size=3))
def test_a_damaged_head_is_read_right_or_not_at_all(at: int, noise: bytes) -> None:
    raw = _PLAIN[:at] + noise + _PLAIN[at:]
    head = parse_head(raw)
    assert head is None or raw.count(b"\r\n") == raw.count(b"\n") == raw.count(b"\r")


def test_a_head_of_an_answer() -> None:
    rendered = render_head(429, {"Retry-After": 1, "X-A": "é"}, True, 3).decode()
    date = re.search(r"Date: (.*)\r\n", rendered)
    assert date is not None
    assert parsedate_to_datetime(date[1]).tzinfo is UTC
    assert rendered.replace(date[1], "D").replace(SERVER_SOFTWARE, "S") == (
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nX-A: é\r\nContent-Length: 3\r\n"
        "Date: D\r\nServer: S\r\nConnection: close\r\n\r\n"
    )
    assert render_head(200, {}, False, 0).endswith(
        b"S\r\n\r\n".replace(b"S", SERVER_SOFTWARE.encode())
    )
    assert b"Transfer-Encoding: chunked" in render_head(200, {}, False, None)


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb"])
def test_a_field_cannot_begin_another(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        render_head(200, {"X-A": value}, False, 0)
