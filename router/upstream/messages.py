"""Endpoints that speak Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson

from router.balance.capability import reads_files
from router.core.exchange import Exchange
from router.core.native_request import NativeRequest
from router.core.upstream import (
    ANTHROPIC_VERSION,
    Listed,
    UpstreamCall,
    UpstreamRequest,
    account_of,
)
from router.dialects.dialect import EncodedRequest
from router.dialects.input_files import FileForm, with_files
from router.dialects.messages.decode_stream import MessagesDecoder
from router.dialects.messages.dialect import ENDPOINT
from router.dialects.messages.encode_request import encode_count_for_messages, encode_for_messages
from router.dialects.messages.passthrough import MessagesPassthrough
from router.dialects.responses.encode_request import asks_for_encrypted
from router.dialects.responses.fields import PRIVATE_FIELDS
from router.dialects.responses.namespaces import flatten
from router.errors import InvalidRequest
from router.response.builder import ResponseBuilder
from router.settings.schema import EndpointSettings
from router.upstream.openai import OpenAIModels
from router.upstream.refusals import passed_headers
from router.upstream.translated import TranslatingAdapter, has_groups

__all__ = ["MessagesAdapter"]

_MESSAGES: Final = "/messages"
_COUNT: Final = "/messages/count_tokens"
_VERSION: Final = dict([ANTHROPIC_VERSION])
_MAX_LEARNED: Final = 1024


class MessagesAdapter(OpenAIModels, TranslatingAdapter):
    """Implements ``router.core.upstream.Adapter`` for the dialect ``messages``.

    Requests of clients that speak it pass as they came (``Exchange.native``); all others are
    translated.
    """

    def __init__(self, endpoint: EndpointSettings) -> None:
        OpenAIModels.__init__(self)
        self._account = account_of(endpoint)
        self._most: dict[str, int] = {}  # tokens of an answer, by model, as the list tells
        decoder = partial(MessagesDecoder, account=self._account)
        dialect = replace(ENDPOINT, encode=self._encode, decoder=decoder)
        TranslatingAdapter.__init__(self, endpoint, dialect)

    def respond(
        self, exchange: Exchange, model: str, builder: ResponseBuilder, context: int | None = None
    ) -> UpstreamCall:
        """See ``Adapter.respond``."""
        native = exchange.passes
        if native is None or native.dialect != "messages":
            return super().respond(exchange, model, builder, context)
        failed = exchange.context.api_format.failed
        decoder = MessagesPassthrough(builder, exchange.shown_model, failed)
        request = _passed(native, _MESSAGES, model, stream=exchange.stream)
        return UpstreamCall(request, decoder, passes=passed_headers)

    def file_form(self, exchange: Exchange, model: str) -> FileForm | None:
        """See ``Adapter.file_form``: the API knows PDF, and text."""
        native = exchange.passes
        if native is not None and native.dialect == "messages":
            return None
        return "text" if reads_files(self._endpoint.capabilities, model) is False else "pdf"

    def count_tokens(self, exchange: Exchange, model: str) -> UpstreamRequest | None:
        """See ``Adapter.count_tokens``. What cannot be encoded is estimated."""
        native = exchange.passes
        if native is not None and native.dialect == "messages":
            return _passed(native, _COUNT, model, stream=True)
        asked = flatten(exchange.body).body if has_groups(exchange.body) else exchange.body
        if exchange.files:
            asked = with_files(asked, exchange.files, self.file_form(exchange, model) or "pdf")
        try:
            body = encode_count_for_messages(
                asked, model=model, settings=self._endpoint, account=self._account
            )
        except InvalidRequest:
            return None
        return UpstreamRequest(_COUNT, orjson.dumps(body), True, _VERSION)

    def models_path(self) -> str:
        """See ``Adapter.models_path``: the list has pages, of which this is the largest."""
        return ENDPOINT.models_path

    def models(self, listing: Any) -> list[Listed]:
        """See ``Adapter.models``. Anthropic tells how long an answer of a model may be, too."""
        listed = super().models(listing)
        self._most = {
            entry["id"]: entry["max_tokens"]
            for entry in listing["data"][:_MAX_LEARNED]
            if isinstance(entry, dict)
            and isinstance(entry.get("id"), str)
            and type(entry.get("max_tokens")) is int
            and entry["max_tokens"] > 0
        }
        return listed

    def _encode(
        self,
        body: Mapping[str, Any],
        *,
        model: str,
        stream: bool,
        usage: bool,
        settings: EndpointSettings,
        images: Mapping[str, str],
    ) -> EncodedRequest:
        return encode_for_messages(
            body,
            model=model,
            stream=stream,
            usage=usage,
            settings=settings,
            images=images,
            account=self._account,
            most=self._most.get(model),
        )

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
        call = super()._call(
            body, exchange, model, builder, context, assembled=assembled, usage=usage
        )
        call.request = replace(call.request, headers=_VERSION)
        assert isinstance(call.decoder, MessagesDecoder)
        call.decoder.hide = not asks_for_encrypted(body)
        return call


def _passed(native: NativeRequest, path: str, model: str, *, stream: bool) -> UpstreamRequest:
    """The client's own request. Counting is quick: it is awaited like a first byte."""
    body = {name: value for name, value in native.body.items() if name not in PRIVATE_FIELDS}
    body["model"] = model
    path = f"{path}?{native.query}" if native.query else path
    return UpstreamRequest(path, orjson.dumps(body), stream, {**_VERSION, **native.headers})
