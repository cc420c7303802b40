"""Endpoints that speak Chat Completions."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from router.balance.capability import reads_files, stream_usage
from router.core.exchange import AnswerKind, Exchange
from router.core.upstream import UpstreamCall
from router.dialects.chat.dialect import ENDPOINT
from router.dialects.input_files import FileForm
from router.errors import UpstreamError, UpstreamRejected
from router.response.builder import ResponseBuilder
from router.settings.schema import EndpointSettings
from router.upstream.embeddings import EmbeddingsAndRerank, UnsupportedOperations, either
from router.upstream.learned import ModelSet
from router.upstream.openai import OpenAIModels, chat_passthrough, is_openai
from router.upstream.translated import TranslatingAdapter, assembles

__all__ = ["ChatAdapter"]


_UNSUPPORTED: Final = (
    r"(?:not supported|unsupported|unknown|unrecognized|unexpected|not permitted|not allowed"
    r"|forbidden)"
)
_REFUSED: Final = re.compile(
    rf"\bstream_options\b[^.]{{0,120}}{_UNSUPPORTED}|{_UNSUPPORTED}[^.]{{0,60}}\bstream_options\b",
    re.IGNORECASE,
)


class ChatAdapter(OpenAIModels, EmbeddingsAndRerank, TranslatingAdapter):
    """Implements ``router.core.upstream.Adapter`` for the dialect ``chat``.

    A stream is asked for its token counts (``stream_options``), but of models that have none: some
    are configured so, others refuse the question, which is remembered for a while.
    """

    def __init__(self, endpoint: EndpointSettings) -> None:
        OpenAIModels.__init__(self)
        TranslatingAdapter.__init__(self, endpoint, ENDPOINT)
        self._unsupported = UnsupportedOperations()
        self._capabilities = endpoint.capabilities
        self._later_system = endpoint.system_messages
        self._is_openai = is_openai(endpoint.url)
        self._without_usage = ModelSet()  # models that refuse it, oldest first

    def respond(
        self, exchange: Exchange, model: str, builder: ResponseBuilder, context: int | None = None
    ) -> UpstreamCall:
        """See ``Adapter.respond``."""
        asks, assembled = self._streams(exchange, model)
        call = self._call(
            exchange.body, exchange, model, builder, context, assembled=assembled, usage=asks
        )
        call.retry = partial(self._learn, model) if asks else None
        return call

    def chat(self, exchange: Exchange, model: str, context: int | None = None) -> UpstreamCall:
        """See ``Adapter.chat``."""
        asks, assembled = self._streams(exchange, model)
        call = chat_passthrough(
            exchange,
            model,
            "/chat/completions",
            context,
            usage=asks,
            later_system=self._later_system,
            assembles=assembled,
        )
        options = exchange.body.get("stream_options") or {}
        if asks and not options.keys() - {"include_usage"}:  # else the client's may be at fault
            call.retry = partial(self._learn, model)
        return call

    def file_form(self, exchange: Exchange, model: str) -> FileForm | None:
        """See ``Adapter.file_form``: Chat Completions are passed on as they came."""
        if exchange.request.operation.kind is AnswerKind.CHAT:
            return None
        stated = reads_files(self._capabilities, model)
        return "data" if (self._is_openai if stated is None else stated) else "text"

    def completions(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.completions``."""
        asks, assembled = self._streams(exchange, model)
        call = self._complete(exchange, model, usage=asks, assembled=assembled)
        options = exchange.body.get("stream_options") or {}
        if asks and not options.keys() - {"include_usage"}:
            call.retry = either(partial(self._learn, model), call.retry)
        return call

    def forget(self, before: float) -> None:
        """See ``Adapter.forget``."""
        self._without_usage.forget(before)
        self._unsupported.forget(before)

    def _streams(self, exchange: Exchange, model: str) -> tuple[bool, bool]:
        """Whether the endpoint is asked for the token counts of a stream, and whether that stream
        is put together here. Where it has no counts, whole answers are asked for as such: those
        have them.
        """
        has_usage = model not in self._without_usage and (
            not self._capabilities or stream_usage(self._capabilities, model) is not False
        )
        if exchange.stream:
            return has_usage, False
        assembled = has_usage and assembles(exchange, self._endpoint)
        return assembled, assembled

    def _learn(self, model: str, error: UpstreamError) -> bool:
        """Whether the endpoint refuses the question for the usage of this model's streams."""
        if not isinstance(error, UpstreamRejected) or not _refuses_usage(error):
            return False
        self._without_usage.add(model)
        return True


def _refuses_usage(error: UpstreamRejected) -> bool:
    """Whether the endpoint refuses ``stream_options`` as such, and nothing else.

    Taken for that by mistake, the error of a request would cost a model its token counts.
    """
    if error.param and not error.param.startswith("stream_options"):
        return False
    return _REFUSED.search(error.message) is not None
