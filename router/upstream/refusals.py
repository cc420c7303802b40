"""What an endpoint's HTTP error means for the client and for the next attempt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final

import orjson

from router.balance.inference import inferred_abilities
from router.balance.pauses import stated_pause
from router.balance.refused_types import may_name_types
from router.errors import (
    EndpointWords,
    UpstreamError,
    UpstreamFailure,
    UpstreamLoading,
    UpstreamModelMissing,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamRouteMissing,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from router.response.upstream_errors import ReportedError, rejection, reported, says_loading

__all__ = ["passed_headers", "refusal"]

_SOMETIMES: Final = frozenset({404, 500, 501})
"""So llama.cpp and OpenRouter, too, say that a model lacks what a request needs, or that a type of
tool is none that they know."""

_CREDENTIALS: Final = frozenset({401, 403, 407})
_NOT_THERE: Final = frozenset({404, 405, 501})
_UNABLE: Final = re.compile(
    r"does(?: not|n't) support (?:the )?(?:embed|rerank|rank|scor|completions api)"
    r"|not allowed to generate embeddings",
    re.IGNORECASE,
)
"""So a model is said not to be one for what was asked, with whatever status."""

_OF_A_MODEL: Final = re.compile(r"model|deployment", re.IGNORECASE)

_OVERLOADED: Final = 529
"""So Anthropic says that it has too much to do."""

_PASSED: Final = re.compile(
    r"request-id|retry-after|anthropic-(?!organization|workspace)[a-z0-9-]+", re.IGNORECASE
)
"""Whose account the router's key is of is for nobody to know."""

_RETRY_AFTER: Final = re.compile(r"[0-9A-Za-z ,:.+]{1,40}")
"""Seconds or an HTTP date; anything else is not repeated."""


def refusal(endpoint: str, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamError:
    """The router's error for an endpoint's answer that is not 200.

    A fault of the request (``response.upstream_errors``) is passed on with its status, type, code,
    param and message; what concerns the router's own credentials or the endpoint's health is not
    the client's to see in detail.
    """
    decoded = _decoded(body)
    error = _judged(endpoint, status, headers, reported(decoded, status))
    of_the_router = status in _CREDENTIALS and not isinstance(error, UpstreamRejected)
    if not of_the_router and isinstance(decoded, dict) and decoded.get("type") == "error":
        error.said = EndpointWords(status, decoded, passed_headers(headers))
    return error


def passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of an endpoint's answer that a client which speaks Anthropic's API reads."""
    return {name: headers[name] for name in headers if _PASSED.fullmatch(name)}


def _judged(
    endpoint: str, status: int, headers: Mapping[str, str], error: ReportedError
) -> UpstreamError:
    message, code = error.message, error.code
    if status == 429:
        said = message or f"Endpoint '{endpoint}' limits its rate."
        return UpstreamRateLimited.quoting(said, headers=_retry_after(headers))
    said = message or f"Endpoint '{endpoint}' refused the request (HTTP {status})."
    rejected = rejection(error, said)
    if rejected is not None:
        return rejected
    if status in _SOMETIMES and (
        inferred_abilities(code, error.param, message) is not None or may_name_types(message)
    ):
        return UpstreamRejected.quoting(said, code=code, param=error.param)
    if says_loading(error):
        return UpstreamLoading(f"Endpoint '{endpoint}' is still loading its model (HTTP 503).")
    return _failure(endpoint, status, code, message)


def _failure(endpoint: str, status: int, code: str | None, message: str) -> UpstreamError:
    """The error for what is not the request's fault."""
    if status in _CREDENTIALS and not _UNABLE.search(message):
        return UpstreamFailure(
            f"Endpoint '{endpoint}' refused the router's credentials (HTTP {status}); "
            "check its api_key in the configuration."
        )
    if status in _NOT_THERE or _UNABLE.search(message):
        of_a_route = _is_of_a_route(status, code, message)
        return (UpstreamRouteMissing if of_a_route else UpstreamModelMissing).quoting(
            message
            or f"Endpoint '{endpoint}' does not know the model or the operation (HTTP {status})."
        )
    if status in (408, 504):
        return UpstreamTimeout(f"Endpoint '{endpoint}' timed out (HTTP {status}).")
    if status == _OVERLOADED:
        return UpstreamFailure(f"Endpoint '{endpoint}' is overloaded (HTTP {status}).")
    if status == 503:
        return UpstreamUnavailable(f"Endpoint '{endpoint}' is unavailable (HTTP 503).")
    if 300 <= status < 400:
        return UpstreamFailure(
            f"Endpoint '{endpoint}' redirects (HTTP {status}), which is not followed; "
            "put the final address in its url."
        )
    return UpstreamFailure(f"Endpoint '{endpoint}' failed (HTTP {status}).")


def _is_of_a_route(status: int, code: str | None, message: str) -> bool:
    """Whether it is the route that is not there, as far as can be told."""
    if status != 404 or _UNABLE.search(message):
        return True
    return _OF_A_MODEL.search(f"{code or ''} {message}") is None


def _retry_after(headers: Mapping[str, str]) -> dict[str, str]:
    """When to ask again: by its ``Retry-After``, or else when it has something left again."""
    after = headers.get("Retry-After", "").strip()
    if not _RETRY_AFTER.fullmatch(after):
        after = str(ceil(stated_pause(headers, datetime.now(UTC))) or "")
    return {"Retry-After": after} if after else {}


def _decoded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
