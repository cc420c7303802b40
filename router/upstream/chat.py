"""Endpoints that speak Chat Completions."""

from __future__ import annotations

from typing import Any

import orjson

from router.exchange import Exchange
from router.settings.schema import EndpointSettings
from router.translate.chat_reader import ChatReader
from router.translate.chat_request import chat_body
from router.translate.draft import Draft
from router.upstream.contract import Call, UpstreamRequest, cannot_compact
from router.upstream.openai import chat_passthrough, model_names
from router.upstream.options import machine_options, unsent_notes, within_context

__all__ = ["ChatAdapter"]


class ChatAdapter:
    """Implements ``router.upstream.contract.Adapter`` for the dialect ``chat``."""

    def __init__(self, endpoint: EndpointSettings) -> None:
        self._context = endpoint.context_length

    def respond(self, exchange: Exchange, model: str, draft: Draft) -> Call:
        """See ``Adapter.respond``."""
        given, notes = within_context(exchange.body, self._context)
        body, unsent = chat_body(given, model=model, stream=exchange.stream)
        request = UpstreamRequest("/chat/completions", orjson.dumps(body), exchange.stream)
        reader = ChatReader(draft, machine_options(given))
        return Call(request, reader, {**unsent_notes(given, unsent), **notes})

    def chat(self, exchange: Exchange, model: str) -> Call:
        """See ``Adapter.chat``."""
        return chat_passthrough(exchange, model, "/chat/completions")

    def count_tokens(self, exchange: Exchange, model: str) -> UpstreamRequest | None:
        """See ``Adapter.count_tokens``: the dialect has no counter."""
        return None

    def compact(self, exchange: Exchange, model: str, draft: Draft) -> Call:
        """See ``Adapter.compact``: the dialect cannot."""
        raise cannot_compact(exchange.model or model)

    def models_path(self) -> str:
        """See ``Adapter.models_path``."""
        return "/models"

    def model_names(self, listing: Any) -> list[str]:
        """See ``Adapter.model_names``."""
        return model_names(listing)
