"""Embeddings, legacy completions and reranking, which endpoints in OpenAI's style have in common.

Not every endpoint has them, and not with every model. One that says so is not asked again for a
while, and the request goes on to another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import orjson

from router.core.exchange import Exchange, Operation
from router.core.upstream import UpstreamCall, UpstreamRequest
from router.dialects.chat.encode_request import PRIVATE_FIELDS
from router.dialects.completions.decode_stream import CompletionPassthrough
from router.dialects.embeddings.decode_response import OLLAMA_FIELDS, EmbeddingsDecoder
from router.dialects.embeddings.rerank import RerankDecoder
from router.dialects.responses.encode_request import encode_native_chat_request
from router.errors import NotSupported, UpstreamError, UpstreamRouteMissing
from router.settings.schema import EndpointSettings
from router.upstream.options import assembles

__all__ = ["EmbeddingsAndRerank", "UnsupportedOperations", "cannot", "either"]

_LACKING_FOR: Final = 600.0
_MOST_LACKING: Final = 1024
_SHOWN: Final = 200
"""Characters of a client's value that an error repeats."""

_DOES: Final[Mapping[Operation, str]] = {
    Operation.COMPLETIONS: "serve legacy completions",
    Operation.EMBEDDINGS: "make embeddings",
    Operation.RERANK: "rerank documents",
}


class UnsupportedOperations:
    """What an endpoint has said that it cannot do with which of its models: for ten minutes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._until: dict[tuple[Operation, str], float] = {}
        self._clock = clock

    def check(self, operation: Operation, exchange: Exchange, model: str) -> None:
        """Raise NotSupported for what it has said that it cannot do."""
        until = self._until.get((operation, model))
        if until is not None and self._clock() < until:
            raise cannot(operation, exchange, model)

    def retry(self, operation: Operation, model: str) -> Callable[[UpstreamError], bool]:
        """A ``UpstreamCall.retry``, which learns from what the endpoint says."""

        def retry(error: UpstreamError) -> bool:
            if not isinstance(error, UpstreamRouteMissing):
                return False
            self._until.pop((operation, model), None)
            self._until[operation, model] = self._clock() + _LACKING_FOR
            if len(self._until) > _MOST_LACKING:
                del self._until[next(iter(self._until))]
            return True

        return retry


def cannot(operation: Operation, exchange: Exchange, model: str) -> NotSupported:
    """For endpoints that cannot do this with a model."""
    name = (exchange.model or model)[:_SHOWN]
    return NotSupported(
        f"No endpoint that serves the model '{name}' can {_DOES[operation]} with it.", param="model"
    )


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
        self._unsupported.check(Operation.COMPLETIONS, exchange, model)
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
            retry=self._unsupported.retry(Operation.COMPLETIONS, model),
            dropped=dropped,
            assembles=assembled,
        )

    def embed(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.embed``."""
        self._unsupported.check(Operation.EMBEDDINGS, exchange, model)
        body = _passed_on(exchange.body, model)
        dropped: list[str] = []
        if exchange.operation is Operation.OLLAMA_EMBED:
            dropped = [name for name in OLLAMA_FIELDS if name != "dimensions" and name in body]
            for name in dropped:
                del body[name]
        return UpstreamCall(
            UpstreamRequest("/embeddings", orjson.dumps(body), False),
            EmbeddingsDecoder(exchange.body, exchange.shown_model),
            retry=self._unsupported.retry(Operation.EMBEDDINGS, model),
            dropped=tuple(dropped),
        )

    def rerank(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.rerank``."""
        self._unsupported.check(Operation.RERANK, exchange, model)
        body = _passed_on(exchange.body, model)
        return UpstreamCall(
            UpstreamRequest("/rerank", orjson.dumps(body), False),
            RerankDecoder(exchange.body, exchange.shown_model),
            retry=self._unsupported.retry(Operation.RERANK, model),
        )


def either(*retries: Callable[[UpstreamError], bool] | None) -> Callable[[UpstreamError], bool]:
    """A ``UpstreamCall.retry`` that learns what any of these does."""

    def retry(error: UpstreamError) -> bool:
        return any(one is not None and one(error) for one in retries)

    return retry


def _passed_on(body: dict[str, Any], model: str) -> dict[str, Any]:
    return {**{k: v for k, v in body.items() if k not in PRIVATE_FIELDS}, "model": model}
