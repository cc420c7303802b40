"""Ollama's own API."""

from __future__ import annotations

from typing import Any

import orjson

from router.errors import UpstreamFailure
from router.exchange import Exchange
from router.settings.schema import EndpointSettings
from router.translate.draft import Draft
from router.translate.ollama_reader import OllamaReader
from router.translate.ollama_request import ollama_body
from router.upstream.contract import Call, UpstreamRequest, cannot_compact
from router.upstream.openai import chat_passthrough
from router.upstream.options import machine_options, unsent_notes, within_context

__all__ = ["OllamaAdapter"]


class OllamaAdapter:
    """Implements ``router.upstream.contract.Adapter`` for the dialect ``ollama``."""

    def __init__(self, endpoint: EndpointSettings) -> None:
        self._num_ctx = endpoint.num_ctx
        self._context = endpoint.context_length or endpoint.num_ctx

    def respond(self, exchange: Exchange, model: str, draft: Draft) -> Call:
        """See ``Adapter.respond``."""
        given, notes = within_context(exchange.body, self._context)
        body, mode = ollama_body(given, model=model, stream=exchange.stream, num_ctx=self._num_ctx)
        request = UpstreamRequest("/api/chat", orjson.dumps(body), exchange.stream)
        options = machine_options(given, forced_call=mode.forced)
        notes = {**unsent_notes(given, mode.unsent), **notes}
        return Call(request, OllamaReader(draft, options), notes)

    def chat(self, exchange: Exchange, model: str) -> Call:
        """See ``Adapter.chat``: Ollama serves Chat Completions itself."""
        return chat_passthrough(exchange, model, "/v1/chat/completions")

    def count_tokens(self, exchange: Exchange, model: str) -> UpstreamRequest | None:
        """See ``Adapter.count_tokens``: Ollama has no counter."""
        return None

    def compact(self, exchange: Exchange, model: str, draft: Draft) -> Call:
        """See ``Adapter.compact``: Ollama cannot."""
        raise cannot_compact(exchange.model or model)

    def models_path(self) -> str:
        """See ``Adapter.models_path``."""
        return "/api/tags"

    def model_names(self, listing: Any) -> list[str]:
        """See ``Adapter.model_names``."""
        models = listing.get("models") if isinstance(listing, dict) else None
        if not isinstance(models, list):
            raise UpstreamFailure("The list of models has no 'models'.")
        names = [m.get("name") or m.get("model") for m in models if isinstance(m, dict)]
        return [name for name in names if isinstance(name, str)]
