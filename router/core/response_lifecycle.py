"""What every response passes, whoever answers it: its id and builder, its headers, and its storing.

A response is stored at the one moment when that has to be done: before its end leaves. Whoever
produces the answer (the pipeline, or a plugin that answers instead) hands it to ``persist`` or
``persist_whole`` before the client gets its terminal event, or its body, and sends what they
return.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.core.exchange import ClientGone, Exchange, internal_error
from router.core.random_digits import random_digits
from router.core.upstream import REASONING_DROPPED
from router.dialects.dropped import DROPPED_PARAMETERS, dropped_header
from router.dialects.responses.fields import OWN_FIELDS
from router.dialects.responses.response_messages import (
    INPUT_MESSAGES,
    input_messages,
    output_messages,
)
from router.dialects.responses.schema import echo_fields
from router.errors import RouterError
from router.response.builder import ResponseBuilder
from router.response.frame import Frame
from router.telemetry.log import get_logger

__all__ = [
    "ID_DIGITS",
    "client_headers",
    "new_builder",
    "new_id",
    "persist",
    "persist_whole",
    "show_messages",
]

_log = get_logger("router.core.response_lifecycle")


async def persist(
    exchange: Exchange,
    builder: ResponseBuilder,
    final: dict[str, Any],
    encrypted_reasoning: Mapping[str, str],
    last: Frame,
) -> Frame:
    """Store the final Response object before ``last``, its terminal event, leaves.

    Returns the event to send: another one where the response could not be stored.
    """
    record = exchange.record
    if record is None:
        return last
    try:
        kept = await record.finish(final, encrypted_reasoning, last)
    except ClientGone:
        raise
    except Exception as exc:
        error = exc if isinstance(exc, RouterError) else _bug(exchange)
        exchange.result.fail(error.code)
        _log.warning("response not stored", request_id=exchange.request.id, error=error.message)
        failed = {"status": "failed", "completed_at": None, "error": error.response_error()}
        return builder.end_otherwise({**final, **failed})
    return last if kept else builder.end_otherwise({**final, "store": False})


async def persist_whole(
    exchange: Exchange, final: dict[str, Any], encrypted_reasoning: Mapping[str, str], body: bytes
) -> bytes:
    """``persist`` for an answer in one piece; raises RouterError where it is not stored."""
    record = exchange.record
    if record is None or await record.finish(final, encrypted_reasoning, None):
        return body
    return orjson.dumps({**final, "store": False})


def _bug(exchange: Exchange) -> RouterError:
    _log.exception("request failed", request_id=exchange.request.id)
    return internal_error(exchange)


def client_headers(exchange: Exchange, response_headers: Mapping[str, str]) -> dict[str, str]:
    """The headers ``response_headers`` of an answer, with those that this exchange's own client is
    told.
    """
    headers = {**exchange.result.headers, **response_headers}
    reasoning_dropped = exchange.result.headers.get(REASONING_DROPPED)
    if reasoning_dropped is not None and REASONING_DROPPED in response_headers:
        headers[REASONING_DROPPED] = str(
            int(reasoning_dropped) + int(response_headers[REASONING_DROPPED])
        )
    if exchange.dropped and not exchange.result.passed:
        others = headers.get(DROPPED_PARAMETERS, "")
        headers |= dropped_header([*exchange.dropped, *filter(None, others.split(", "))])
    return headers


ID_DIGITS: Final = 48
"""Hex digits of an id, behind its prefix."""


def new_id(prefix: str) -> str:
    """A fresh id: the prefix and 48 hex digits, the first 8 of them the time, as OpenAI's are.

    Neighbours in time are neighbours in an index, which makes storing them several times cheaper.
    """
    return f"{prefix}{int(time.time() * 65536):012x}{random_digits()}"


def new_builder(
    body: Mapping[str, Any],
    *,
    muted: bool = False,
    created: tuple[str, int] | None = None,
    first_sequence: int = 0,
) -> ResponseBuilder:
    """The response builder of the response to a validated create request; the rest is as for
    ``ResponseBuilder``.
    """
    builder = ResponseBuilder(
        echo=echo_fields(body, model=body["model"]),
        own_fields=OWN_FIELDS,
        new_id=new_id,
        now=time.time,
        muted=muted,
        created=created,
        first_sequence=first_sequence,
    )
    if body.get("enable_response_messages"):
        show_messages(builder, body)
    return builder


def show_messages(builder: ResponseBuilder, body: Mapping[str, Any]) -> None:
    """Have the response show what the model is given and what it says as messages, too; ``body``
    has all of its input.
    """
    builder.echo = {**builder.echo, INPUT_MESSAGES: input_messages(body)}
    builder.messages = output_messages
