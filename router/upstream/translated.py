"""Chat Completions asked of an endpoint in its own words, which are not those of a chat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from router.core.exchange import Exchange
from router.core.new_response import new_draft
from router.core.upstream import Call
from router.dialects.chat.decode_request import from_chat
from router.dialects.chat.encode_stream import ChatTold
from router.errors import InvalidRequest
from router.response.builder import Draft
from router.upstream.options import within_context

__all__ = ["as_chat"]


def as_chat(
    exchange: Exchange,
    context: int | None,
    respond: Callable[[dict[str, Any], Draft], Call],
    *,
    reasoning: bool,
) -> Call:
    """The call for a Chat Completions request, made by ``respond`` of a Responses request.

    Its messages are cut to ``context`` where they are to be (see ``within_context``).
    ``reasoning`` is whether the endpoint takes that of earlier turns. Raises InvalidRequest for
    what cannot be carried, in the chat's words.
    """
    body, notes = within_context(exchange, exchange.body, context)
    given = from_chat(body, model=exchange.shown_model, reasoning=reasoning)
    draft = new_draft(given.body, muted=not exchange.stream)
    try:
        call = respond(given.body, draft)
    except InvalidRequest as error:
        error.param = error.param and given.named(error.param)
        raise
    call.notes.update(notes)
    options = exchange.body.get("stream_options") or {}
    call.reader = ChatTold(
        call.reader, wants_usage=bool(options.get("include_usage")), muted=not exchange.stream
    )
    call.unsent = (*given.unsent, *map(given.named, call.unsent))
    call.named = given.named
    return call
