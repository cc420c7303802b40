"""How the answers of an API look on the wire: its errors, and the frames of its streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Final

from router.errors import RouterError
from router.response.frame import COMMENT, Frame

__all__ = ["AS_EVENT", "OPENAI", "SSE_HEADERS", "ApiFormat", "encode_line"]

SSE_HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


AS_EVENT: Final[Callable[[Frame], bytes]] = methodcaller("encode")
"""A frame as a server-sent event."""


@dataclass(frozen=True, slots=True)
class ApiFormat:
    """The form of one API's answers.

    ``error`` is the JSON body of an error; ``failed`` the frame that ends a stream which has begun.
    ``error_headers`` are those that an error has besides its own, ``headers`` those of a stream.
    ``encode`` is how one of its frames is written, ``silence`` what may be written between two of
    them to show that there is somebody (empty: nothing may). ``names`` are those of its fields that
    the Responses API has under another name, by that name.
    """

    error: Callable[[RouterError], Mapping[str, Any]]
    failed: Callable[[RouterError], Frame]
    headers: Mapping[str, str] = field(default_factory=lambda: SSE_HEADERS)
    encode: Callable[[Frame], bytes] = AS_EVENT
    silence: bytes = COMMENT
    names: Mapping[str, str] = field(default_factory=dict)
    error_headers: Callable[[RouterError], Mapping[str, str]] = lambda error: {}


def encode_line(frame: Frame) -> bytes:
    """A frame as a line of JSON, as in NDJSON."""
    return frame.data + b"\n"


def _failed(error: RouterError) -> Frame:
    return Frame.of(
        {
            "type": "error",
            "code": error.code,
            "message": error.message,
            "param": error.param,
            "sequence_number": 0,
        }
    )


OPENAI: Final = ApiFormat(RouterError.envelope, _failed)
"""OpenAI's APIs."""
