"""The Responses API: create, count tokens, compact."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import orjson
from aiohttp import web

from router.core.exchange import Exchange
from router.core.known_requests import recalled
from router.core.plugin_hooks import Proceed
from router.dialects.parameters import missing
from router.dialects.responses.compaction import parse_compact
from router.dialects.responses.message_history import with_previous_messages
from router.dialects.responses.prompt_reference import prompt_reference
from router.dialects.responses.prompts import apply_prompt
from router.dialects.responses.schema import parse_create, validate_create
from router.errors import InvalidRequest
from router.http.body import is_true, without_misspelt
from router.http.connection import HttpRequest
from router.http.prompts import no_prompt
from router.sessions.turns import Turns, is_durable
from router.state.prompts import PromptStore

__all__ = ["Dispatch", "ResponsesApi", "check_durable"]


class Dispatch(Protocol):
    """How a handler gets its request's body, and has it answered."""

    async def read(
        self, request: HttpRequest, exchange: Exchange, decode: Callable[[bytes], dict[str, Any]]
    ) -> dict[str, Any]:
        """See ``RequestDispatcher.read``."""
        ...

    def run(
        self, request: HttpRequest, exchange: Exchange, answer: Proceed
    ) -> Awaitable[web.StreamResponse]:
        """See ``RequestDispatcher.run``."""
        ...

    def default_model(self, exchange: Exchange) -> str | None:
        """See ``RequestDispatcher.default_model``."""
        ...


class ResponsesApi:
    """Handlers under ``/v1/responses`` that make an exchange with an endpoint."""

    def __init__(self, dispatcher: Dispatch, turns: Turns, prompts: PromptStore) -> None:
        self._dispatcher = dispatcher
        self._turns = turns
        self._prompts = prompts

    async def create(self, request: HttpRequest, exchange: Exchange) -> web.StreamResponse:
        """POST /responses."""
        stream = True if request.query_string and is_true(request.query.get("stream")) else None
        decode = partial(parse_create, stream=stream, any_model=True)
        if stream is None:
            decode = partial(recalled, exchange, decode)
        body = await self._dispatcher.read(request, exchange, decode)
        known = exchange.known
        if known is not None and known.body is not None:
            exchange.ask(known.body, known.dropped)
            return await self._dispatcher.run(request, exchange, self._turns.answer)
        if body.get("prompt") is not None or not body.get("model"):
            exchange.known = None  # there is more to it than its bytes
            body = await self._completed(exchange, body)
        if body.get("stream_options"):
            check_durable(body)
        if body.get("previous_input_messages"):
            body = await exchange.compute(with_previous_messages, body)
        exchange.ask(*without_misspelt(body))
        return await self._dispatcher.run(request, exchange, self._turns.answer)

    async def input_tokens(self, request: HttpRequest, exchange: Exchange) -> web.StreamResponse:
        """POST /responses/input_tokens."""
        decode = partial(parse_create, stream=False, any_model=True)
        body = await self._dispatcher.read(request, exchange, decode)
        if body.get("prompt") is not None or not body.get("model"):
            body = await self._completed(exchange, body)
        if body.get("previous_input_messages"):
            body = await exchange.compute(with_previous_messages, body)
        exchange.ask(*without_misspelt(body))
        return await self._dispatcher.run(request, exchange, self._turns.resolve)

    async def compact(self, request: HttpRequest, exchange: Exchange) -> web.StreamResponse:
        """POST /responses/compact."""
        body = await self._dispatcher.read(request, exchange, parse_compact)
        if not body.get("model"):
            body["model"] = await self._model(exchange, body)
        if body.get("previous_input_messages"):
            body = await exchange.compute(with_previous_messages, body)
        exchange.ask(*without_misspelt({**body, "stream": False}))
        return await self._dispatcher.run(request, exchange, self._turns.resolve)

    async def _completed(self, exchange: Exchange, body: dict[str, Any]) -> dict[str, Any]:
        """The body of a create request with its stored prompt, if it has one, and a model."""
        if body.get("prompt") is not None:
            body = await self._with_prompt(exchange, body)
        if not body.get("model"):
            body["model"] = await self._model(exchange, body)
        return body

    async def _model(self, exchange: Exchange, body: dict[str, Any]) -> str:
        """The model of a request that names none: that of the response, or of the conversation,
        which it continues, else the default. Raises InvalidRequest where there is none either.
        """
        model = await self._turns.resolver.model_before(exchange.context.caller, body)
        model = model or self._dispatcher.default_model(exchange)
        if not model:
            raise missing("model")
        return model

    async def _with_prompt(self, exchange: Exchange, body: dict[str, Any]) -> dict[str, Any]:
        """The body, its stored prompt applied; raises RouterError for what is wrong with it."""
        reference = prompt_reference(body["prompt"])
        prompt = await self._prompts.get(exchange.context.caller, reference.key, reference.version)
        if prompt is None:
            raise no_prompt(reference.key, reference.version, param="prompt.id")
        fields = orjson.loads(prompt.body)
        body = apply_prompt(
            body, fields, reference.variables, ident=prompt.id, version=prompt.version
        )
        await exchange.compute(partial(validate_create, any_model=True), body)
        names = ("input", "previous_response_id", "conversation", "previous_input_messages")
        if not any(body.get(name) for name in names):
            raise missing("input")
        return body


def check_durable(body: dict[str, Any]) -> None:
    """Raise InvalidRequest for a stream that is to be resumable and not to be stored."""
    if is_durable(body) and body.get("store") is False:
        raise InvalidRequest(
            "Unsupported parameter: 'stream_options.durable' needs 'store' to be true, because "
            "its events are fetched later.",
            code="unsupported_parameter",
            param="stream_options.durable",
        )
