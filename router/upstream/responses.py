"""Endpoints that speak the Responses API themselves."""

from __future__ import annotations

import re
from typing import Final

import orjson

from router.errors import UpstreamRejected
from router.exchange import Exchange
from router.settings.schema import EndpointSettings
from router.translate.compaction import CompactionReader
from router.translate.draft import Draft
from router.translate.native import NativeReader
from router.translate.native_request import (
    asks_for_encrypted,
    compact_body,
    native_body,
    token_count_body,
)
from router.upstream.contract import REASONING_DROPPED, Call, UpstreamRequest, account_of, redacted
from router.upstream.learned import ModelSet
from router.upstream.openai import OpenAIModels, chat_passthrough

__all__ = ["ResponsesAdapter"]


_ENCRYPTED: Final = re.compile(r"encrypted[ _]content", re.IGNORECASE)
_INCLUDE: Final = re.compile(r"\binclude\b")
_UNSUPPORTED: Final = re.compile(r"not supported|unsupported|not available", re.IGNORECASE)
_SUPPORTED: Final = re.compile(r"supported values", re.IGNORECASE)


class ResponsesAdapter(OpenAIModels):
    """Implements ``router.upstream.contract.Adapter`` for the dialect ``responses``."""

    def __init__(self, endpoint: EndpointSettings) -> None:
        super().__init__()
        self._account = account_of(endpoint)
        self._endpoint = endpoint
        self._without_encrypted = ModelSet()  # models that refuse it, oldest first

    def respond(self, exchange: Exchange, model: str, draft: Draft) -> Call:
        """See ``Adapter.respond``."""
        shown = asks_for_encrypted(exchange.body)
        adds = exchange.record is not None and not shown and model not in self._without_encrypted
        body, dropped = native_body(
            exchange.body,
            model=model,
            stream=exchange.stream,
            account=self._account,
            encrypted=adds,
        )
        request = UpstreamRequest("/responses", orjson.dumps(body), exchange.stream)
        reader = NativeReader(draft, self._account, self._redact, hide=not shown)
        others = len(exchange.body.get("include") or ())

        def retry(error: UpstreamRejected) -> bool:
            if not _refuses_encrypted(error, others):
                return False
            self._without_encrypted.add(model)
            return True

        return Call(request, reader, _dropped_note(dropped), retry if adds else None)

    def _redact(self, text: str) -> str:
        return redacted(self._endpoint, text)

    def chat(self, exchange: Exchange, model: str) -> Call:
        """See ``Adapter.chat``: who serves Responses usually serves Chat Completions beside it."""
        return chat_passthrough(exchange, model, "/chat/completions")

    def count_tokens(self, exchange: Exchange, model: str) -> UpstreamRequest | None:
        """See ``Adapter.count_tokens``. Counting is quick: it is awaited like a first byte."""
        body = token_count_body(exchange.body, model=model, account=self._account)
        return UpstreamRequest("/responses/input_tokens", orjson.dumps(body), stream=True)

    def compact(self, exchange: Exchange, model: str, draft: Draft) -> Call:
        """See ``Adapter.compact``."""
        body, dropped = compact_body(exchange.body, model=model, account=self._account)
        request = UpstreamRequest("/responses/compact", orjson.dumps(body), False)
        reader = CompactionReader(draft, self._account, self._redact)
        return Call(request, reader, _dropped_note(dropped))


def _dropped_note(dropped: int) -> dict[str, str]:
    return {REASONING_DROPPED: str(dropped)} if dropped else {}


def _refuses_encrypted(error: UpstreamRejected, others: int) -> bool:
    """Whether the endpoint refuses that encrypted reasoning is included, and nothing else.

    ``others`` is how many entries the client's own ``include`` has; ours is the last one. Taken
    for a refusal by mistake, the error of a request would cost a model's reasoning for good.
    """
    if error.code == "invalid_encrypted_content":  # of the input
        return False
    message = _SUPPORTED.split(error.message)[0]  # what is supported is not what was wrong
    named = _ENCRYPTED.search(message) is not None
    if error.param is None:
        by_name = _UNSUPPORTED.search(message) or (not others and _INCLUDE.search(message))
        return named and bool(by_name)
    if error.param == "include":
        return named or not others
    return error.param == f"include[{others}]"
