"""How answers of Anthropic's API look on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.balance.overflow import CONTEXT_EXCEEDED
from router.dialects.api_format import ApiFormat
from router.dialects.messages.overflow import overflow_message
from router.errors import NotCached, NotSupported, QuotaExceeded, RouterError, UpstreamError
from router.response.frame import Frame

__all__ = ["ANTHROPIC", "REQUEST_ID", "anthropic_format", "error_body"]

REQUEST_ID: Final = "request-id"
"""The header by which its clients know a request."""

_PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'

_TYPES: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


_NAMES: Final[Mapping[str, str]] = {
    "max_output_tokens": "max_tokens",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "reasoning.effort": "output_config.effort",
    "stop": "stop_sequences",
    "text.format": "output_config.format",
}


_NO_RETRY: Final[Mapping[str, str]] = {"x-should-retry": "false"}
_LASTING: Final = (NotCached, NotSupported, QuotaExceeded)
"""Errors of statuses that clients retry, which the same request would get again."""


def error_body(status: int, message: str, request_id: str | None) -> dict[str, Any]:
    """The body of an error; also the event that ends a stream which has begun."""
    kind = _TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": request_id,
    }


def anthropic_format(request_id: str | None) -> ApiFormat:
    """The form of the answers to the request with this id."""

    def error(error: RouterError) -> Mapping[str, Any]:
        if isinstance(error, UpstreamError) and error.said is not None:
            return error.said.body  # some clients look for its very words
        message = error.message
        if error.code == CONTEXT_EXCEEDED:
            message = overflow_message(message)
        return error_body(error.status, message, request_id)

    return ApiFormat(
        error,
        lambda failed: Frame.of(dict(error(failed))),
        silence=_PING,
        names=_NAMES,
        error_headers=_error_headers,
    )


def _error_headers(error: RouterError) -> Mapping[str, str]:
    """Claude Code retries nearly everything, a wrong key (401) included, unless told not to."""
    lasting = error.status in (401, 403) or isinstance(error, _LASTING)
    return _NO_RETRY if lasting else {}


ANTHROPIC: Final = anthropic_format(None)
"""For a request of which nothing is known yet."""
