"""Endpoints that speak the Responses API themselves."""

from __future__ import annotations

import re
import time
from functools import partial
from math import inf
from typing import Any, Final

import orjson

from router.balance.capability import openai_tools, reads_files
from router.balance.refused_types import late_types, refused_types
from router.core.exchange import AnswerKind, Exchange
from router.core.upstream import (
    REASONING_DROPPED,
    UpstreamCall,
    UpstreamRequest,
    account_of,
    redacted,
)
from router.dialects.input_files import FileForm, with_files
from router.dialects.responses.compaction import CompactionDecoder
from router.dialects.responses.decode_stream import ResponsesDecoder
from router.dialects.responses.encode_request import (
    asks_for_encrypted,
    encode_compact_request,
    encode_responses_request,
    encode_token_count_request,
    known_fields,
)
from router.dialects.responses.plain_types import (
    PlainRequest,
    PlainTypesDecoder,
    groups_of_types,
    without_types,
)
from router.dialects.responses.schema import ids_of
from router.errors import (
    NotFound,
    UpstreamError,
    UpstreamModelMissing,
    UpstreamRejected,
    UpstreamRouteMissing,
)
from router.response.builder import ResponseBuilder
from router.settings.schema import EndpointSettings
from router.upstream.embeddings import EmbeddingsAndRerank, UnsupportedOperations
from router.upstream.learned import ALL_MODELS, ModelSet
from router.upstream.openai import OpenAIModels, chat_passthrough, is_openai
from router.upstream.translated import as_chat, assembles

__all__ = ["ResponsesAdapter"]


_ENCRYPTED: Final = re.compile(r"encrypted[ _]content", re.IGNORECASE)
_INCLUDE: Final = re.compile(r"\binclude\b")
_UNSUPPORTED: Final = re.compile(r"not supported|unsupported|not available", re.IGNORECASE)
_SUPPORTED: Final = re.compile(r"supported values", re.IGNORECASE)

_NONE: Final[frozenset[str]] = frozenset()
_OPENAI_TOOLS: Final = groups_of_types({"namespace", "custom"})

_RESPONSES_ONLY: Final = re.compile(r"only (?:supported )?(?:in|with|by) [\w ]*v1/responses")
"""OpenAI of some of its models."""


class ResponsesAdapter(OpenAIModels, EmbeddingsAndRerank):
    """Implements ``router.core.upstream.Adapter`` for the dialect ``responses``."""

    def __init__(self, endpoint: EndpointSettings) -> None:
        super().__init__()
        self._unsupported = UnsupportedOperations()
        self._account = account_of(endpoint)
        self._endpoint = endpoint
        self._without_encrypted = ModelSet()  # models that refuse it, oldest first
        self._chat = endpoint.chat_completions
        self._without_chat = ModelSet()  # models that have Responses only
        self._capabilities = endpoint.capabilities
        self._without_types: dict[str, ModelSet] = {}  # models that refuse a type
        self._is_openai = is_openai(endpoint.url)
        self.compacts: bool | None = True if self._is_openai else None
        self._refused_to_compact = inf  # when it did

    def respond(
        self, exchange: Exchange, model: str, builder: ResponseBuilder, context: int | None = None
    ) -> UpstreamCall:
        """See ``Adapter.respond``; ``truncation`` is the endpoint's own to heed."""
        given = exchange.body
        dropped: tuple[str, ...] = ()
        if exchange.request.operation.translated:
            given, dropped = known_fields(given)
        shown = asks_for_encrypted(given)
        adds = exchange.record is not None and not shown and model not in self._without_encrypted
        call = self._call(exchange, given, model, builder, encrypted=adds, hide=not shown)
        others = len(given.get("include") or ())
        known = self._refused(model)

        def retry(error: UpstreamError) -> bool:
            if not isinstance(error, UpstreamRejected):
                return False
            if adds and _refuses_encrypted(error, others):
                self._without_encrypted.add(model)
                return True
            return self._learn_types(error, model, given, known)

        call.retry = retry
        call.dropped += dropped
        return call

    def _learn_types(
        self, error: UpstreamRejected, model: str, given: dict[str, Any], known: frozenset[str]
    ) -> bool:
        """Whether the endpoint refuses types that the request had, and can do without; ``known``
        are those that it had not. Another request may have learned the same meanwhile.
        """
        sent = without_types(given, known).body if known else given
        types = groups_of_types(refused_types(error.param, error.message, sent)) - known
        if self._capabilities and openai_tools(self._capabilities, model):
            types -= _OPENAI_TOOLS
        for kind in types:
            self._without_types.setdefault(kind, ModelSet()).add(model)
        return bool(types)

    def _refused(self, model: str) -> frozenset[str]:
        """The types that the endpoint does not know: it has refused them of this model, or the
        configuration says so.
        """
        stated = openai_tools(self._capabilities, model) if self._capabilities else None
        if not self._without_types:
            return _OPENAI_TOOLS if stated is False else _NONE
        refused = {kind for kind, models in self._without_types.items() if model in models}
        return frozenset(refused | _OPENAI_TOOLS if stated is False else refused)

    def _suitable(self, given: dict[str, Any], model: str) -> PlainRequest | None:
        """The request without types that the endpoint does not know; None where it knows all."""
        refused = self._refused(model)
        if refused:
            refused &= groups_of_types(late_types(given))
        return without_types(given, refused) if refused else None

    def _call(
        self,
        exchange: Exchange,
        given: dict[str, Any],
        model: str,
        builder: ResponseBuilder,
        *,
        hide: bool,
        encrypted: bool = False,
    ) -> UpstreamCall:
        """The call for this request; ``hide`` as for ``ResponsesDecoder``, ``encrypted`` as for
        ``encode_responses_request``.
        """
        assembled = assembles(exchange, self._endpoint)
        stream = exchange.stream or assembled
        if exchange.files:
            given = self._with_files(given, exchange, model)
        if not self._is_openai and "client_metadata" in given:  # it is OpenAI's
            given = {name: value for name, value in given.items() if name != "client_metadata"}
        plain = self._suitable(given, model) if self._without_types or self._capabilities else None
        if plain is not None:
            given = plain.body
        body, dropped_reasoning = encode_responses_request(
            given, model=model, stream=stream, account=self._account, encrypted=encrypted
        )
        request = UpstreamRequest("/responses", orjson.dumps(body), exchange.stream)
        items = given.get("input")
        taken = _NONE if type(items) is str else ids_of(items)
        make = ResponsesDecoder if plain is None else partial(PlainTypesDecoder, plain.names)
        decoder = make(builder, self._account, self._redact, hide=hide, taken=taken)
        return UpstreamCall(
            request,
            decoder,
            _dropped_note(dropped_reasoning),
            dropped=() if plain is None else plain.dropped,
            assembles=assembled,
        )

    def file_form(self, exchange: Exchange, model: str) -> FileForm | None:
        """See ``Adapter.file_form``: ids of files that were uploaded here mean nothing there."""
        if exchange.request.operation.kind is AnswerKind.CHAT and not self._translates(model):
            return None
        return "text" if reads_files(self._capabilities, model) is False else "data"

    def _with_files(self, given: dict[str, Any], exchange: Exchange, model: str) -> dict[str, Any]:
        return with_files(given, exchange.files, self.file_form(exchange, model) or "data")

    def _redact(self, text: str) -> str:
        return redacted(self._endpoint, text)

    def chat(self, exchange: Exchange, model: str, context: int | None = None) -> UpstreamCall:
        """See ``Adapter.chat``: who serves Responses usually serves Chat Completions beside it.

        Where it turns out that the endpoint does not, or not of a model, that is remembered, and
        the request is translated.
        """
        learns = self._chat == "auto"
        if self._translates(model):
            call = as_chat(
                exchange, context, partial(self._respond, exchange, model), reasoning=False
            )
            call.retry = partial(self._unlearn, model) if learns else None
            return call
        call = chat_passthrough(
            exchange,
            model,
            "/chat/completions",
            context,
            assembles=assembles(exchange, self._endpoint),
        )
        call.retry = partial(self._learn, model) if learns else None
        return call

    def _translates(self, model: str) -> bool:
        learned = model in self._without_chat or ALL_MODELS in self._without_chat
        return self._chat == "translated" or (learned and self._chat == "auto")

    def _respond(
        self, exchange: Exchange, model: str, body: dict[str, Any], builder: ResponseBuilder
    ) -> UpstreamCall:
        given, dropped = known_fields(body)
        hide = not asks_for_encrypted(given)
        call = self._call(exchange, given, model, builder, hide=hide)
        call.dropped += dropped
        return call

    def _learn(self, model: str, error: UpstreamError) -> bool:
        if isinstance(error, UpstreamRouteMissing):
            self._without_chat.add(ALL_MODELS)
            return True
        if not _RESPONSES_ONLY.search(error.message):
            return False
        self._without_chat.add(model)
        return True

    def _unlearn(self, model: str, error: UpstreamError) -> bool:
        """Its Responses are not there either: it may have been the model that was not found."""
        if isinstance(error, UpstreamModelMissing):
            self._without_chat.discard(ALL_MODELS)
            self._without_chat.discard(model)
        return False

    def count_tokens(self, exchange: Exchange, model: str) -> UpstreamRequest | None:
        """See ``Adapter.count_tokens``. Counting is quick: it is awaited like a first byte."""
        plain = self._suitable(exchange.body, model)
        given = exchange.body if plain is None else plain.body
        if exchange.files:
            given = self._with_files(given, exchange, model)
        body = encode_token_count_request(given, model=model, account=self._account)
        return UpstreamRequest("/responses/input_tokens", orjson.dumps(body), stream=True)

    def compact(self, exchange: Exchange, model: str, builder: ResponseBuilder) -> UpstreamCall:
        """See ``Adapter.compact``."""
        plain = self._suitable(exchange.body, model)
        given = exchange.body if plain is None else plain.body
        if exchange.files:
            given = self._with_files(given, exchange, model)
        body, dropped_reasoning = encode_compact_request(given, model=model, account=self._account)
        request = UpstreamRequest("/responses/compact", orjson.dumps(body), False)
        decoder = CompactionDecoder(builder, self._account, self._redact, self._has_compacted)
        call = UpstreamCall(request, decoder, _dropped_note(dropped_reasoning))
        call.retry = self._cannot_compact
        return call

    def _has_compacted(self) -> None:
        self.compacts = True

    def _cannot_compact(self, error: UpstreamError) -> bool:
        """Whether it may be asked in another way: it may not, but that is remembered."""
        taken_for_an_id = isinstance(error, UpstreamRejected) and error.status == NotFound.status
        if taken_for_an_id or isinstance(error, UpstreamRouteMissing):
            self.compacts, self._refused_to_compact = False, time.monotonic()
        return False

    def forget(self, before: float) -> None:
        """See ``Adapter.forget``."""
        types = self._without_types
        for models in (self._without_encrypted, self._without_chat, *types.values()):
            models.forget(before)
        self._without_types = {kind: models for kind, models in types.items() if models}
        self._unsupported.forget(before)
        if self.compacts is False and self._refused_to_compact < before:
            self.compacts = None


def _dropped_note(dropped_reasoning: int) -> dict[str, str]:
    return {REASONING_DROPPED: str(dropped_reasoning)} if dropped_reasoning else {}


def _refuses_encrypted(error: UpstreamRejected, others: int) -> bool:
    """Whether the endpoint refuses that encrypted reasoning is included, and nothing else.

    ``others`` is how many entries the client's own ``include`` has; ours is the last one. Taken
    for a refusal by mistake, the error of a request would cost a model's reasoning.
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
