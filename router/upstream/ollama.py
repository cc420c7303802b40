"""Ollama's own API."""

from __future__ import annotations

from typing import Any

import orjson

from router.core.exchange import AnswerKind, Exchange
from router.core.upstream import (
    Listed,
    LoadRequest,
    UpstreamCall,
    UpstreamRequest,
    leaves_memory,
)
from router.dialects.embeddings.decode_response import OllamaEmbedDecoder, ollama_embed_body
from router.dialects.input_files import FileForm
from router.dialects.ollama.dialect import ENDPOINT
from router.dialects.ollama.schema import listed_models
from router.settings.schema import EndpointSettings
from router.settings.values import KeepAlive
from router.upstream.embeddings import EmbeddingsAndRerank, UnsupportedOperations
from router.upstream.openai import chat_passthrough
from router.upstream.translated import TranslatingAdapter, assembles, cannot

__all__ = ["OllamaAdapter"]


class OllamaAdapter(EmbeddingsAndRerank, TranslatingAdapter):
    """Implements ``router.core.upstream.Adapter`` for the dialect ``ollama``."""

    _completions_path = "/v1/completions"

    def __init__(self, endpoint: EndpointSettings) -> None:
        super().__init__(endpoint, ENDPOINT)
        self._unsupported = UnsupportedOperations()
        self._num_ctx = endpoint.num_ctx
        self._keep_alive = endpoint.keep_alive
        self._later_system = endpoint.system_messages
        self._passes_chat = endpoint.chat_completions == "native"

    def chat(self, exchange: Exchange, model: str, context: int | None = None) -> UpstreamCall:
        """See ``Adapter.chat``. Ollama serves Chat Completions itself, but has no fields there for
        the context, or for how long a model is kept: asked so, it would load the model anew.
        """
        if self._passes_chat:
            return chat_passthrough(
                exchange,
                model,
                "/v1/chat/completions",
                context,
                later_system=self._later_system,
                assembles=assembles(exchange, self._endpoint),
            )
        return super().chat(exchange, model, context)

    def takes_urls(self, exchange: Exchange) -> bool:
        """See ``Adapter.takes_urls``: Ollama fetches nothing. What is passed on to it as it came
        is the client's to put right.
        """
        return exchange.request.operation.kind is AnswerKind.CHAT and self._passes_chat

    def file_form(self, exchange: Exchange, model: str) -> FileForm | None:
        """See ``Adapter.file_form``."""
        return None if self.takes_urls(exchange) else super().file_form(exchange, model)

    def embed(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.embed``."""
        self._unsupported.check(AnswerKind.EMBEDDINGS, exchange, model)
        body, dropped = ollama_embed_body(exchange.body, model=model, num_ctx=self._num_ctx)
        if self._keep_alive is not None:
            body["keep_alive"] = self._keep_alive
        return UpstreamCall(
            UpstreamRequest("/api/embed", orjson.dumps(body), False),
            OllamaEmbedDecoder(exchange.body, exchange.shown_model),
            retry=self._unsupported.retry(AnswerKind.EMBEDDINGS, model),
            dropped=dropped,
        )

    def forget(self, before: float) -> None:
        """See ``Adapter.forget``."""
        self._unsupported.forget(before)

    def rerank(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.rerank``: Ollama cannot."""
        raise cannot(AnswerKind.RERANK, exchange, model)

    def models(self, listing: Any) -> list[Listed]:
        """See ``Adapter.models``. Those that run elsewhere are never in this one's memory, and
        always ready.
        """
        return [
            Listed(name, True if isinstance(model.get("remote_host"), str) else None)
            for name, model in listed_models(listing)
        ]

    def loaded_path(self) -> str | None:
        """See ``Adapter.loaded_path``."""
        return "/api/ps"

    def loaded(self, listing: Any) -> list[str]:
        """See ``Adapter.loaded``. Ollama lists a model from the moment it begins to load it."""
        return [name for name, _ in listed_models(listing)]

    def load(self, model: str, keep_alive: KeepAlive | None = None) -> LoadRequest | None:
        """See ``Adapter.load``. With another ``num_ctx`` than that of the requests to come, the
        first of them would load it once more. A model of embeddings is loaded by making none.
        """
        body: dict[str, Any] = {"model": model, "stream": False}
        if keep_alive is not None:
            body["keep_alive"] = keep_alive
        elif self._keep_alive is not None and not leaves_memory(self._keep_alive):
            body["keep_alive"] = self._keep_alive
        if self._num_ctx is not None:
            body["options"] = {"num_ctx": self._num_ctx}
        if leaves_memory(keep_alive):
            return LoadRequest("/api/generate", orjson.dumps(body), unloads=True)
        same = {name: value for name, value in body.items() if name != "stream"}
        embeds = LoadRequest("/api/embed", orjson.dumps({**same, "input": []}))
        return LoadRequest("/api/generate", orjson.dumps(body), instead=embeds)

    def load_seconds(self, body: bytes) -> float | None:
        """See ``Adapter.load_seconds``."""
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
        nanoseconds = answer.get("load_duration") if isinstance(answer, dict) else None
        if type(nanoseconds) is not int or nanoseconds <= 0:
            return None
        return nanoseconds / 1e9
