"""The Responses API: create, count tokens, and what refers to stored responses."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from router.errors import InvalidRequest, NotFound
from router.exchange import Exchange
from router.plugin import Proceed
from router.web.body import read_body
from router.web.front import Front
from router.wire.responses import parse_create, parse_object, validate_create

__all__ = ["ResponsesApi"]

_NO_STATE: Final = "Switchyard does not store responses yet"
_TRUE: Final = frozenset({"true", "1"})
_MAX_PAGE: Final = 100
_SHOWN: Final = 200
"""Characters of a client's value that an error repeats."""


class ResponsesApi:
    """Handlers under ``/v1/responses``. ``answer`` is the core of the chain."""

    def __init__(self, front: Front, answer: Proceed) -> None:
        self._front = front
        self._answer = answer

    async def create(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /responses."""
        body = parse_object(await read_body(request, self._front.max_body))
        if request.query.get("stream", "").lower() in _TRUE:
            body["stream"] = True
        validate_create(body)
        _refuse_state(body)
        exchange.body = body
        exchange.model = body["model"]
        exchange.stream = bool(body.get("stream"))
        return await self._front.run(request, exchange, self._answer)

    async def input_tokens(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /responses/input_tokens."""
        body = parse_create(await read_body(request, self._front.max_body))
        _refuse_state(body)
        exchange.body = body
        exchange.model = body["model"]
        return await self._front.run(request, exchange, self._answer)

    async def stored(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """Retrieve, delete, cancel and input items of a response: none is stored."""
        if request.path.endswith("/input_items"):
            _check_page(request)
        ident = request.match_info["id"][:_SHOWN]
        raise NotFound(f"Response with id '{ident}' not found. {_NO_STATE}, whatever 'store' says.")


def _refuse_state(body: dict[str, Any]) -> None:
    """Refuse, by name, what needs stored state."""
    if previous := body.get("previous_response_id"):
        raise InvalidRequest(
            f"Previous response with id '{previous[:_SHOWN]}' not found. {_NO_STATE}; send the "
            "whole history as 'input'.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    if conversation := body.get("conversation"):
        ident = conversation.get("id") if isinstance(conversation, dict) else conversation
        raise NotFound(
            f"Conversation with id '{str(ident)[:_SHOWN]}' not found. {_NO_STATE}, nor "
            "conversations; send the whole history as 'input'."
        )
    if body.get("background"):
        raise InvalidRequest(
            f"'background' is not available: {_NO_STATE}.",
            code="unsupported_parameter",
            param="background",
        )
    if body.get("prompt"):
        raise InvalidRequest(
            "'prompt' is not available: Switchyard does not store prompts yet. Send "
            "'instructions' and 'input'.",
            code="unsupported_parameter",
            param="prompt",
        )


def _check_page(request: web.Request) -> None:
    """Refuse a bad page before the response is looked up."""
    limit = request.query.get("limit", "20")
    try:
        count = int(limit[:_SHOWN])
    except ValueError:
        raise InvalidRequest(
            "Invalid 'limit': expected an integer.", code="invalid_type", param="limit"
        ) from None
    if count < 1:
        raise InvalidRequest(
            f"Invalid 'limit': integer below minimum value. Expected a value >= 1, got {count}.",
            code="integer_below_min_value",
            param="limit",
        )
    if count > _MAX_PAGE:
        raise InvalidRequest(
            f"Invalid 'limit': integer above maximum value. Expected a value <= {_MAX_PAGE}, "
            f"got {count}.",
            code="integer_above_max_value",
            param="limit",
        )
    order = request.query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest(
            f"Invalid value: '{order[:40]}'. Supported values are: 'asc' and 'desc'.",
            code="invalid_value",
            param="order",
        )
