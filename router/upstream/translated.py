"""Chat Completions asked of an endpoint in its own words, which are not those of a chat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from router.core.exchange import Exchange
from router.core.response_lifecycle import new_builder
from router.core.upstream import UpstreamCall
from router.dialects.chat.decode_request import decode_chat_request
from router.dialects.chat.encode_stream import ChatEncoder
from router.errors import InvalidRequest
from router.response.builder import ResponseBuilder
from router.upstream.shared import within_context

__all__ = ["as_chat"]


def as_chat(
    exchange: Exchange,
    context: int | None,
    respond: Callable[[dict[str, Any], ResponseBuilder], UpstreamCall],
    *,
    reasoning: bool,
) -> UpstreamCall:
    """The call for a Chat Completions request, made by ``respond`` of a Responses request.

    Its messages are cut to ``context`` where they are to be (see ``within_context``).
    ``reasoning`` is whether the endpoint takes that of earlier turns. Raises InvalidRequest for
    what cannot be carried, in the chat's words.
    """
    body, response_headers = within_context(exchange, exchange.body, context)
    given = decode_chat_request(body, model=exchange.shown_model, reasoning=reasoning)
    builder = new_builder(given.body, muted=not exchange.stream)
    try:
        call = respond(given.body, builder)
    except InvalidRequest as error:
        error.param = error.param and given.named(error.param)
        raise
    call.response_headers.update(response_headers)
    options = exchange.body.get("stream_options") or {}
    call.decoder = ChatEncoder(
        call.decoder, wants_usage=bool(options.get("include_usage")), muted=not exchange.stream
    )
    call.dropped = (*given.dropped, *map(given.named, call.dropped))
    call.named = given.named
    return call
