"""Endpoints whose dialect is neither Responses nor, for a chat, Chat Completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from router.core.exchange import AnswerKind, Exchange
from router.core.response_lifecycle import new_builder
from router.core.upstream import (
    Listed,
    LoadRequest,
    UpstreamCall,
    UpstreamRequest,
    cannot_compact,
)
from router.dialects.chat.decode_request import decode_chat_request
from router.dialects.chat.encode_stream import ChatEncoder
from router.dialects.dialect import EndpointDialect
from router.errors import InvalidRequest, UpstreamFailure
from router.response.builder import ResponseBuilder
from router.settings.schema import EndpointSettings
from router.settings.values import KeepAlive
from router.upstream.shared import (
    assembles,
    cannot,
    dropped_note,
    machine_options,
    within_context,
)

__all__ = ["TranslatingAdapter", "as_chat"]


class TranslatingAdapter:
    """Implements ``router.core.upstream.Adapter`` for a dialect that a folder declares.

    Responses requests are encoded by ``dialect``, Chat Completions decoded first. What else there
    is (embeddings, a list of what is in memory …) is for the adapters of dialects that have it.
    """

    def __init__(self, endpoint: EndpointSettings, dialect: EndpointDialect) -> None:
        self._endpoint = endpoint
        self._dialect = dialect

    def respond(
        self, exchange: Exchange, model: str, builder: ResponseBuilder, context: int | None = None
    ) -> UpstreamCall:
        """See ``Adapter.respond``."""
        assembled = assembles(exchange, self._endpoint)
        return self._call(exchange.body, exchange, model, builder, context, assembled=assembled)

    def chat(self, exchange: Exchange, model: str, context: int | None = None) -> UpstreamCall:
        """See ``Adapter.chat``: it is translated."""
        assembled = assembles(exchange, self._endpoint)

        def respond(body: dict[str, Any], builder: ResponseBuilder) -> UpstreamCall:
            return self._call(body, exchange, model, builder, None, assembled=assembled)

        return as_chat(exchange, context, respond, reasoning=True)

    def _call(
        self,
        body: dict[str, Any],
        exchange: Exchange,
        model: str,
        builder: ResponseBuilder,
        context: int | None,
        *,
        assembled: bool,
        usage: bool = True,
    ) -> UpstreamCall:
        """The call for this Responses request; ``assembled`` as ``UpstreamCall.assembles``,
        ``usage`` as for ``EncodeRequest``.
        """
        response_headers: dict[str, str] = {}
        given = body
        if context is not None and exchange.truncates:
            given, response_headers = within_context(exchange, body, context)
        encoded = self._dialect.encode(
            given,
            model=model,
            stream=exchange.stream or assembled,
            usage=usage,
            settings=self._endpoint,
            images=exchange.images,
        )
        if isinstance(given.get("input"), list):
            response_headers = {**dropped_note(given), **response_headers}
        options = machine_options(exchange, given, forced_call=encoded.forced_call)
        return UpstreamCall(
            UpstreamRequest(encoded.path, orjson.dumps(encoded.body), exchange.stream),
            self._dialect.decoder(builder, options),
            response_headers,
            dropped=encoded.dropped,
            assembles=assembled,
        )

    def completions(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.completions``: the dialect has none."""
        raise cannot(AnswerKind.COMPLETIONS, exchange, model)

    def embed(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.embed``: the dialect has none."""
        raise cannot(AnswerKind.EMBEDDINGS, exchange, model)

    def rerank(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.rerank``: the dialect cannot."""
        raise cannot(AnswerKind.RERANK, exchange, model)

    def takes_urls(self, exchange: Exchange) -> bool:
        """See ``Adapter.takes_urls``."""
        return True

    def count_tokens(self, exchange: Exchange, model: str) -> UpstreamRequest | None:
        """See ``Adapter.count_tokens``: the dialect has no counter."""
        return None

    def compact(self, exchange: Exchange, model: str, builder: ResponseBuilder) -> UpstreamCall:
        """See ``Adapter.compact``: the dialect cannot."""
        raise cannot_compact(exchange.model or model)

    def models_path(self) -> str:
        """See ``Adapter.models_path``."""
        return self._dialect.models_path

    def models(self, listing: Any) -> list[Listed]:
        """See ``Adapter.models``."""
        return [Listed(name) for name in self._dialect.model_names(listing)]

    def context_path(self) -> str | None:
        """See ``Adapter.context_path``: there is no such place."""
        return None

    def context(self, properties: Any) -> int | None:
        """See ``Adapter.context``."""
        return None

    def loaded_path(self) -> str | None:
        """See ``Adapter.loaded_path``: it is not told."""
        return None

    def loaded(self, listing: Any) -> list[str]:
        """See ``Adapter.loaded``."""
        raise UpstreamFailure("This kind of endpoint has no list of what is in memory.")

    def load(self, model: str, keep_alive: KeepAlive | None = None) -> LoadRequest | None:
        """See ``Adapter.load``: it cannot be asked to."""
        return None

    def load_seconds(self, body: bytes) -> float | None:
        """See ``Adapter.load_seconds``: it is never told."""
        return None


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
