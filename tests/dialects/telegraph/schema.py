"""What telegrams look like."""

from __future__ import annotations

from typing import Final

import orjson

from router.dialects.api_format import ApiFormat
from router.errors import RouterError
from router.response.frame import Frame

__all__ = ["TELEGRAM", "stop", "word"]


def word(text: str) -> Frame:
    """A line of a telegram."""
    return Frame("", b"WORD " + orjson.dumps(text))


def stop(received: int, sent: int) -> Frame:
    """The last line, with the tokens."""
    return Frame("", b"STOP %d %d" % (received, sent))


def _lost(error: RouterError) -> Frame:
    return Frame("", b"LOST " + orjson.dumps(error.message))


TELEGRAM: Final = ApiFormat(
    error=lambda error: {"lost": error.message},
    failed=_lost,
    headers={"Content-Type": "text/plain; charset=utf-8"},
    encode=lambda frame: frame.data + b"\n",
    silence=b"",
)
