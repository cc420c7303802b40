"""What an endpoint's HTTP error means for the client and for the next attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.errors import (
    UpstreamError,
    UpstreamFailure,
    UpstreamModelMissing,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)

__all__ = ["refusal"]

_MAX_MESSAGE: Final = 2000
_FAULT_OF_THE_REQUEST: Final = frozenset({400, 413, 415, 422})


def refusal(endpoint: str, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamError:
    """The router's error for an endpoint's answer that is not 200.

    A fault of the request is passed on with its message, code and param; what concerns the
    router's own credentials or the endpoint's health is not the client's to see in detail.
    """
    error = _error_object(body)
    message = _message(error, body)
    if status == 429:
        after = headers.get("Retry-After")
        return UpstreamRateLimited(
            message or f"Endpoint '{endpoint}' limits its rate.",
            headers={"Retry-After": after} if after else None,
        )
    if status in _FAULT_OF_THE_REQUEST:
        return UpstreamRejected(
            message or f"Endpoint '{endpoint}' refused the request (HTTP {status}).",
            code=_text(error, "code"),
            param=_text(error, "param"),
        )
    if status in (401, 403):
        return UpstreamFailure(
            f"Endpoint '{endpoint}' refused the router's credentials (HTTP {status}); "
            "check its api_key in the configuration."
        )
    if status == 404:
        return UpstreamModelMissing(
            message or f"Endpoint '{endpoint}' does not know the model or the operation (HTTP 404)."
        )
    if status in (408, 504):
        return UpstreamTimeout(f"Endpoint '{endpoint}' timed out (HTTP {status}).")
    if status == 503:
        return UpstreamUnavailable(f"Endpoint '{endpoint}' is unavailable (HTTP 503).")
    return UpstreamFailure(f"Endpoint '{endpoint}' failed (HTTP {status}).")


def _error_object(body: bytes) -> Any:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return value.get("error", value.get("detail")) if isinstance(value, dict) else None


def _message(error: Any, body: bytes) -> str:
    """The endpoint's own words: OpenAI's envelope, Ollama's string, FastAPI's detail."""
    if isinstance(error, dict):
        error = error.get("message")
    if isinstance(error, list):
        error = orjson.dumps(error).decode()
    if isinstance(error, str):
        return error[:_MAX_MESSAGE]
    return ""


def _text(error: Any, key: str) -> str | None:
    value = error.get(key) if isinstance(error, dict) else None
    return value if isinstance(value, str) else None
