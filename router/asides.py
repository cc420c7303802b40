"""What is asked of an endpoint besides answers: to count tokens, to compact a conversation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import orjson

from router.delivery import answer_headers
from router.endpoints.registry import Registry, Target
from router.errors import (
    InvalidRequest,
    NotSupported,
    RouterError,
    UpstreamError,
    UpstreamModelMissing,
    UpstreamRejected,
)
from router.exchange import Exchange, Sink
from router.telemetry.log import get_logger
from router.translate.compaction import compacted
from router.translate.draft import IdFactory
from router.translate.usage import estimate_tokens, prompt_chars
from router.upstream.contract import UpstreamRequest

__all__ = ["Asides"]

_log = get_logger("router.asides")

_Requests = dict[Target, UpstreamRequest]
_NOT_ACCEPTED: Final = "No endpoint that serves the model '{}' can compact a conversation. "


class Asides:
    """Asks the endpoints of one configuration."""

    def __init__(self, registry: Registry, max_attempts: int, new_id: IdFactory) -> None:
        self._registry = registry
        self._max_attempts = max_attempts
        self._new_id = new_id

    async def count_tokens(self, exchange: Exchange, sink: Sink) -> None:
        """Ask an endpoint that can count; estimate, and say so, where none can."""
        requests = {
            target: request
            for target in await self._registry.targets(exchange.model or "")
            if (request := target.endpoint.adapter.count_tokens(exchange, target.model))
        }
        count = None
        if requests:
            try:
                count = _input_tokens(await self._ask(exchange, requests))
            except UpstreamRejected:
                raise
            except UpstreamError as error:
                _log.warning("token count failed", endpoint=exchange.endpoint, error=error.message)
        notes: dict[str, str] = {}
        if count is None:
            count = estimate_tokens(prompt_chars(exchange.body))
            notes["X-Switchyard-Estimated"] = "true"
        body = {"object": "response.input_tokens", "input_tokens": count}
        sink.finish(200, orjson.dumps(body), answer_headers(exchange, notes))

    async def compact(self, exchange: Exchange, sink: Sink) -> None:
        """Have an endpoint compact the conversation; raises NotSupported where none can."""
        requests = await self._compactions(exchange)
        failure: RouterError = NotSupported(
            _NOT_ACCEPTED.format(exchange.model)
            + "Send 'truncation': 'auto' to have the oldest turns left out instead."
        )
        while requests and exchange.attempts < self._max_attempts:
            try:
                answer = await self._ask(exchange, requests)
                body = compacted(
                    answer,
                    account=exchange.account or "",
                    new_id=self._new_id,
                    now=lambda: int(time.time()),
                )
            except UpstreamModelMissing:
                pass  # it knows the model, or it would not be asked: what it lacks is the route
            except UpstreamError as error:
                if not error.elsewhere:
                    raise
                failure = error
            else:
                exchange.usage = body["usage"]
                sink.finish(200, orjson.dumps(body), answer_headers(exchange, {}))
                return
            requests = {
                target: request
                for target, request in requests.items()
                if target.endpoint.name != exchange.endpoint
            }
        raise failure

    async def _compactions(self, exchange: Exchange) -> _Requests:
        requests: _Requests = {}
        refused: InvalidRequest | None = None
        for target in await self._registry.targets(exchange.model or ""):
            try:
                request = target.endpoint.adapter.compact(exchange, target.model)
            except InvalidRequest as error:
                refused = error
            else:
                if request is not None:
                    requests[target] = request
        if not requests and refused is not None:
            raise refused
        return requests

    async def _ask(self, exchange: Exchange, requests: _Requests) -> bytes:
        """What one of the endpoints answered; raises UpstreamError."""
        targets: Sequence[Target] = tuple(requests)
        async with self._registry.reserve(targets) as target:
            exchange.endpoint = target.endpoint.name
            exchange.account = target.endpoint.account
            exchange.attempts += 1
            exchange.notes.update(requests[target].notes)
            try:
                answer = await target.endpoint.transport.send(requests[target])
                try:
                    return await answer.body()
                finally:
                    answer.close()
            except UpstreamError as error:
                error.message = target.endpoint.redacted(error.message)
                raise


def _input_tokens(body: bytes) -> int | None:
    try:
        count = orjson.loads(body)["input_tokens"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return count if isinstance(count, int) else None
