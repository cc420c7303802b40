"""Embeddings, legacy completions and reranking, of endpoints in OpenAI's style.

Not every endpoint has them, and not with every model: one that says so is not asked again for a
while, and the request goes on to another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

import orjson

from router.core.exchange import AnswerKind, Exchange
from router.core.upstream import UpstreamCall, UpstreamRequest
from router.dialects.completions.decode_stream import CompletionPassthrough
from router.dialects.embeddings.decode_response import OLLAMA_FIELDS, EmbeddingsDecoder
from router.dialects.embeddings.rerank import RerankDecoder
from router.dialects.responses.encode_request import encode_native_chat_request
from router.dialects.responses.fields import PRIVATE_FIELDS
from router.errors import UpstreamError, UpstreamRouteMissing
from router.settings.schema import EndpointSettings
from router.upstream.translated import assembles, cannot

__all__ = ["EmbeddingsAndRerank", "UnsupportedOperations", "either"]

_LACKING_FOR: Final = 600.0
_MOST_LACKING: Final = 1024


class UnsupportedOperations:
    """What an endpoint has said that it cannot do with which of its models: for ten minutes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._until: dict[tuple[AnswerKind, str], float] = {}
        self._clock = clock

    def check(self, kind: AnswerKind, exchange: Exchange, model: str) -> None:
        """Raise NotSupported for what it has said that it cannot do."""
        until = self._until.get((kind, model))
        if until is not None and self._clock() < until:
            raise cannot(kind, exchange, model)

    def forget(self, before: float) -> None:
        """Forget what it has said before this time, in seconds of the clock."""
        for key in [key for key, until in self._until.items() if until - _LACKING_FOR < before]:
            del self._until[key]

    def retry(self, kind: AnswerKind, model: str) -> Callable[[UpstreamError], bool]:
        """A ``UpstreamCall.retry``, which learns from what the endpoint says."""

        def retry(error: UpstreamError) -> bool:
            if not isinstance(error, UpstreamRouteMissing):
                return False
            self._until.pop((kind, model), None)
            self._until[kind, model] = self._clock() + _LACKING_FOR
            if len(self._until) > _MOST_LACKING:
                del self._until[next(iter(self._until))]
            return True

        return retry


class EmbeddingsAndRerank:
    """That part of ``Adapter`` as OpenAI, vLLM and their like have it."""

    _endpoint: EndpointSettings
    _unsupported: UnsupportedOperations
    _completions_path: ClassVar[str] = "/completions"

    def takes_urls(self, exchange: Exchange) -> bool:
        """See ``Adapter.takes_urls``."""
        return True

    def completions(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.completions``."""
        return self._complete(exchange, model, assembled=assembles(exchange, self._endpoint))

    def _complete(
        self, exchange: Exchange, model: str, *, usage: bool = True, assembled: bool = False
    ) -> UpstreamCall:
        """The call; ``usage`` is whether the model has token counts for a stream, ``assembled``
        as ``UpstreamCall.assembles``.
        """
        self._unsupported.check(AnswerKind.COMPLETIONS, exchange, model)
        stream = exchange.stream or assembled
        body = encode_native_chat_request(exchange.body, model=model, stream=stream)
        wants_usage = bool((exchange.body.get("stream_options") or {}).get("include_usage"))
        dropped: tuple[str, ...] = ()
        if exchange.stream and not usage:
            del body["stream_options"]
            dropped = ("stream_options",) if wants_usage else ()
        return UpstreamCall(
            UpstreamRequest(self._completions_path, orjson.dumps(body), exchange.stream),
            CompletionPassthrough(
                exchange.body,
                model=exchange.shown_model,
                wants_usage=wants_usage,
                assembles=assembled,
            ),
            retry=self._unsupported.retry(AnswerKind.COMPLETIONS, model),
            dropped=dropped,
            assembles=assembled,
        )

    def embed(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.embed``."""
        self._unsupported.check(AnswerKind.EMBEDDINGS, exchange, model)
        body = _passed_on(exchange.body, model)
        dropped: list[str] = []
        if exchange.request.operation.translated:
            dropped = [name for name in OLLAMA_FIELDS if name != "dimensions" and name in body]
            for name in dropped:
                del body[name]
        return UpstreamCall(
            UpstreamRequest("/embeddings", orjson.dumps(body), False),
            EmbeddingsDecoder(exchange.body, exchange.shown_model),
            retry=self._unsupported.retry(AnswerKind.EMBEDDINGS, model),
            dropped=tuple(dropped),
        )

    def rerank(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.rerank``."""
        self._unsupported.check(AnswerKind.RERANK, exchange, model)
        body = _passed_on(exchange.body, model)
        return UpstreamCall(
            UpstreamRequest("/rerank", orjson.dumps(body), False),
            RerankDecoder(exchange.body, exchange.shown_model),
            retry=self._unsupported.retry(AnswerKind.RERANK, model),
        )


def either(*retries: Callable[[UpstreamError], bool] | None) -> Callable[[UpstreamError], bool]:
    """A ``UpstreamCall.retry`` that learns what any of these does."""

    def retry(error: UpstreamError) -> bool:
        return any(one is not None and one(error) for one in retries)

    return retry


def _passed_on(body: dict[str, Any], model: str) -> dict[str, Any]:
    return {**{k: v for k, v in body.items() if k not in PRIVATE_FIELDS}, "model": model}
