"""A telegraph's request as one of the Responses API."""

from __future__ import annotations

from typing import Any

from router.dialects.dialect import ApiRequest
from router.dialects.parameters import missing
from router.dialects.responses.schema import validate_create

from .encode_stream import TelegraphEncoder

__all__ = ["decode_request"]


def decode_request(given: dict[str, Any]) -> ApiRequest:
    """Raises InvalidRequest."""
    if not given.get("station"):
        raise missing("station")
    body = {
        "model": given["station"],
        "input": [{"role": who, "content": text} for who, text in given.get("wires") or ()],
        "stream": bool(given.get("live")),
        "store": False,
    }
    validate_create(body)
    known = ("station", "wires", "live")
    return ApiRequest(
        body, lambda times: TelegraphEncoder(), tuple(name for name in given if name not in known)
    )
