"""Storing an answer at the one moment when that has to be done: before its end leaves.

Whoever produces an answer (the pipeline, or a plugin that answers instead) hands it to these before
the client gets its terminal event, or its body, and sends what they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from router.core.exchange import ClientGone, Exchange, Outcome, internal_error
from router.errors import RouterError
from router.response.builder import ResponseBuilder
from router.response.frame import Frame
from router.telemetry.log import get_logger

__all__ = ["persist", "persist_whole"]

_log = get_logger("router.core.persist")


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
        exchange.outcome = Outcome.FAILED
        exchange.error_code = error.code
        _log.warning("response not stored", request_id=exchange.id, error=error.message)
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
    _log.exception("request failed", request_id=exchange.id)
    return internal_error(exchange)
