"""Endpoints that speak the Responses API themselves."""

from __future__ import annotations

from typing import Any

import orjson

from router.exchange import Exchange
from router.settings.schema import EndpointSettings
from router.translate.draft import Draft
from router.translate.native import NativeReader
from router.translate.native_request import native_body, token_count_body
from router.upstream.contract import Call, UpstreamRequest, account_of, redacted
from router.upstream.openai import chat_passthrough, model_names

__all__ = ["ResponsesAdapter"]


class ResponsesAdapter:
    """Implements ``router.upstream.contract.Adapter`` for the dialect ``responses``."""

    def __init__(self, endpoint: EndpointSettings) -> None:
        self._account = account_of(endpoint)
        self._endpoint = endpoint

    def respond(self, exchange: Exchange, model: str, draft: Draft) -> Call:
        """See ``Adapter.respond``."""
        body, dropped = native_body(
            exchange.body, model=model, stream=exchange.stream, account=self._account
        )
        request = UpstreamRequest("/responses", orjson.dumps(body), exchange.stream)
        notes = {"X-Switchyard-Reasoning-Dropped": str(dropped)} if dropped else {}
        return Call(request, NativeReader(draft, self._account, self._redact), notes)

    def _redact(self, text: str) -> str:
        return redacted(self._endpoint, text)

    def chat(self, exchange: Exchange, model: str) -> Call:
        """See ``Adapter.chat``: who serves Responses usually serves Chat Completions beside it."""
        return chat_passthrough(exchange, model, "/chat/completions")

    def count_tokens(self, exchange: Exchange, model: str) -> UpstreamRequest | None:
        """See ``Adapter.count_tokens``. Counting is quick: it is awaited like a first byte."""
        body = token_count_body(exchange.body, model=model, account=self._account)
        return UpstreamRequest("/responses/input_tokens", orjson.dumps(body), stream=True)

    def models_path(self) -> str:
        """See ``Adapter.models_path``."""
        return "/models"

    def model_names(self, listing: Any) -> list[str]:
        """See ``Adapter.model_names``."""
        return model_names(listing)
