"""The heads of plain requests, and those of their answers.

Only a head that nobody could read in two ways is read here; every other one is for aiohttp, which
answers malformed ones, too. Source: RFC 9112, sections 2.2, 5 and 6.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from aiohttp.http import SERVER_SOFTWARE
from multidict import CIMultiDict, CIMultiDictProxy

__all__ = ["MAX_HEAD", "PlainHead", "parse_head", "render_head"]

MAX_HEAD: Final = 16 * 1024
"""Bytes of the largest head that is read here."""

_HEAD: Final = re.compile(
    rb"POST (/[!-~]*+) HTTP/1\.1\r\n"
    rb"((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[^\x00-\x08\x0a-\x1f\x7f]*+\r\n)++)\r\n"
)
"""Every line after the first is one field."""

_FIELD: Final = re.compile(r"([^:\n]+):([^\r]*)\r\n")
_DIGITS: Final = re.compile(r"[0-9]{1,15}")
_NOT_PLAIN: Final = frozenset({"transfer-encoding", "expect", "upgrade", "content-encoding"})


class PlainHead(NamedTuple):
    """The head of a POST. ``length`` is that of its body, in bytes; ``close``: it is the last
    request of its connection.
    """

    raw_path: str
    headers: CIMultiDictProxy[str]
    length: int
    close: bool


def parse_head(raw: bytes) -> PlainHead | None:
    """The head, with the blank line that ends it; None where it is not a plain one."""
    match = _HEAD.fullmatch(raw)
    if match is None:
        return None
    fields = match[2].decode("utf-8", "surrogateescape")
    pairs = [(name, value.strip(" \t")) for name, value in _FIELD.findall(fields)]
    names = [name.lower() for name, _ in pairs]
    headers = CIMultiDict(pairs)
    length = headers.get("Content-Length", "")
    connection = headers.get("Connection", "keep-alive").lower()
    if (
        not _NOT_PLAIN.isdisjoint(names)
        or names.count("content-length") != 1
        or names.count("host") > 1
        or names.count("connection") > 1
        or connection not in ("keep-alive", "close")
        or not _DIGITS.fullmatch(length)
    ):
        return None
    path = match[1].decode("ascii")
    return PlainHead(path, CIMultiDictProxy(headers), int(length), connection == "close")


_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}


def render_head(status: int, headers: Mapping[str, Any], close: bool, length: int | None) -> bytes:
    """The head of an answer, with the blank line that ends it; ``length`` is that of its body in
    bytes, None for one in chunks. ``close``: it is the last of its connection.

    Raises ValueError for a field that would begin another line.
    """
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, '')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}")
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1:
        raise ValueError("A header of an answer contains a line break.")
    return text.encode("utf-8", "surrogateescape") + _ends(int(time.time()))[close]


@lru_cache(maxsize=1)
def _ends(second: int) -> tuple[bytes, bytes]:
    """What every head ends with in this second of the epoch: one of a connection that stays, and
    one of a connection that closes.
    """
    date = formatdate(second, usegmt=True)
    end = f"\r\nDate: {date}\r\nServer: {SERVER_SOFTWARE}\r\n".encode()
    return end + b"\r\n", end + b"Connection: close\r\n\r\n"
