"""What an endpoint reports as an error, and whether the request itself is at fault.

An error is the request's own where no other endpoint and no other moment could cure it. With an
HTTP status that is any from 400 to 499 but 408, 425 and 429, which pass with time, and 401, 403,
404, 405 and 407: those concern the router's credentials or the endpoint's routes, unless the error
says that it is about something in the request:

- a connector that the request brings (an MCP server): type or code ``external_connector_error``,
  as OpenAI has it, or the message speaks of an MCP server or a connector;
- a field of the request: ``param`` names one other than the model;
- an object that the request refers to (``Item with id 'x' not found.``);
- with 403, moderation of the input.

An error within a stream has no HTTP status. One is taken from a number in ``code`` or ``status``
(vLLM, SGLang, llama.cpp, LiteLLM, OpenRouter), else from the type (OpenAI, Anthropic), else from
the code. Where there is none of these, nothing is known, and the endpoint is taken to have failed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.balance.overflow import CONTEXT_EXCEEDED, exceeds_context
from router.errors import UpstreamRejected

__all__ = ["ReportedError", "rejection", "reported", "says_loading"]

_MAX_MESSAGE: Final = 2000
_MAX_NAME: Final = 200

_PASSING: Final = frozenset({408, 425, 429})
_OF_THE_ROUTER: Final = frozenset({401, 403, 404, 405, 407})
_MAY_OVERFLOW: Final = frozenset({None, 400, 404, 413, 422, 500, 501})
"""Statuses with which engines say that a request is too long for the context."""

_LOADING: Final = re.compile(
    r"\bloading (?:the )?model\b|\bmodel\b[^.]{0,200}\bis (?:still |currently )?loading\b",
    re.IGNORECASE,
)
_CONNECTOR: Final = "external_connector_error"
_OF_A_CONNECTOR: Final = re.compile(r"\bMCP server\b|\bconnector\b", re.IGNORECASE)
_OF_AN_OBJECT: Final = re.compile(
    r"\bwith id ['\"`]?[\w-]+['\"`]? (?:was )?not found|\bno such \w+ object\b", re.IGNORECASE
)
_OF_MODERATION: Final = re.compile(
    r"\binput was flagged\b|\bmoderation\b|\bcontent (?:policy|filter)", re.IGNORECASE
)
_OF_THE_REQUEST: Final = re.compile(
    r"(?:input|messages|prompt|instructions|tools?|tool_choice|tool_resources|include|metadata|text"
    r"|response_format|previous_response_id|conversation|file_ids?|vector_store_ids?|connector_id"
    r"|server_url|mcp_servers|reasoning|attachments|image\w*|audio)(?:[\[.].*)?",
    re.DOTALL,
)
"""Values of ``param`` that name what a request contains."""

_STATUS_OF_TYPE: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "BadRequestError": 400,
    "exceed_context_size_error": 400,
    "authentication_error": 401,
    "AuthenticationError": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "NotFoundError": 404,
    "request_too_large": 413,
    "UnprocessableEntityError": 422,
    "validation": 422,  # Text Generation Inference
    "external_connector_error": 424,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
}
_STATUS_OF_CODE: Final[Mapping[str, int]] = {
    _CONNECTOR: 424,
    "content_policy_violation": 400,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "rate_limit_exceeded": 429,
}


@dataclass(frozen=True, slots=True)
class ReportedError:
    """An error in an endpoint's words; ``status`` is an HTTP status, None where none is known."""

    status: int | None
    message: str
    type: str | None = None
    code: str | None = None
    param: str | None = None


def reported(body: Any, status: int | None = None) -> ReportedError:
    """What the decoded body of an error, or an event that reports one, says.

    Understood are OpenAI's ``error``, Ollama's and Text Generation Inference's ``error`` that is a
    text, FastAPI's ``detail``, and an object that is the error itself. ``status`` is that of the
    HTTP answer; None within a stream.
    """
    error = body
    if isinstance(body, dict):
        error = body.get("error") or body.get("detail") or body
    fields: dict[str, Any] = error if isinstance(error, dict) else {}
    around: dict[str, Any] = body if isinstance(body, dict) else {}
    kind = _name(fields, "type") or _name(around, "error_type")
    if kind == "error":
        kind = None  # so the event itself is called
    code = _name(fields, "code")
    if status is None:
        status = (
            _number(fields.get("code"))
            or _number(fields.get("status"))
            or _number(around.get("status"))
            or _STATUS_OF_TYPE.get(kind or "")
            or _STATUS_OF_CODE.get(code or "")
        )
    if code is not None and code.isdecimal():
        code = None  # LiteLLM repeats the status
    return ReportedError(status, _message(error), kind, code, _name(fields, "param"))


def rejection(error: ReportedError, default_message: str) -> UpstreamRejected | None:
    """The error for a request that is at fault itself; None where it is not.

    Its status, type, code and message are the endpoint's; a request that is too long for the
    context is 400 ``context_length_exceeded`` in whatever words. ``default_message`` is for an
    error without a message.
    """
    message = error.message or default_message
    if error.status in _MAY_OVERFLOW and exceeds_context(
        error.code, error.type, error.param, error.message
    ):
        return UpstreamRejected.quoting(message, code=CONTEXT_EXCEEDED, param=error.param)
    status = error.status
    if status is None or not 400 <= status < 500 or status in _PASSING:
        return None
    if status in _OF_THE_ROUTER and not _is_about_the_request(error):
        return None
    rejected = UpstreamRejected.quoting(message, code=error.code, param=error.param)
    rejected.status = status
    rejected.type = error.type or rejected.type
    return rejected


def says_loading(error: ReportedError) -> bool:
    """Whether an endpoint says that it is still bringing its model into memory.

    llama.cpp answers everything so while it starts: 503 ``Loading model``.
    """
    return error.status == 503 and _LOADING.search(error.message) is not None


def _is_about_the_request(error: ReportedError) -> bool:
    if _CONNECTOR in (error.type, error.code) or _OF_A_CONNECTOR.search(error.message):
        return True
    if error.param is not None and _OF_THE_REQUEST.fullmatch(error.param):
        return True
    if error.status == 404 and _OF_AN_OBJECT.search(error.message):
        return True
    return error.status == 403 and _OF_MODERATION.search(error.message) is not None


def _message(error: Any) -> str:
    if isinstance(error, dict):
        error = error.get("message")
    if isinstance(error, list):
        error = orjson.dumps(error).decode()
    return error[:_MAX_MESSAGE] if isinstance(error, str) else ""


def _name(fields: Mapping[str, Any], key: str) -> str | None:
    value = fields.get(key)
    if not isinstance(value, str) or value in ("", "None"):
        return None
    return value[:_MAX_NAME]


def _number(value: Any) -> int | None:
    """An HTTP status of an error, as a number or in digits."""
    if isinstance(value, str) and len(value) == 3 and value.isdecimal():
        value = int(value)
    return value if type(value) is int and 400 <= value <= 599 else None
