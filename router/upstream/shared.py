"""What the adapters of several dialects share.

``EmbeddingsAndRerank`` sends embeddings, legacy completions and reranking to endpoints in OpenAI's
style. Not every endpoint has them, and not with every model: one that says so is not asked again
for a while, and the request goes on to another one.

``machine_options``, ``within_context`` and ``dropped_note`` say what a translated answer has to
know of its request, and what its client is told. ``ModelSet`` keeps what an adapter has learned of
an endpoint's models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

import orjson

from router.core.exchange import AnswerKind, Exchange
from router.core.upstream import REASONING_DROPPED, UpstreamCall, UpstreamRequest
from router.dialects.chat.encode_request import custom_tool_names, wants_logprobs
from router.dialects.completions.decode_stream import CompletionPassthrough
from router.dialects.embeddings.decode_response import OLLAMA_FIELDS, EmbeddingsDecoder
from router.dialects.embeddings.rerank import RerankDecoder
from router.dialects.history import match, match_messages
from router.dialects.responses.encode_request import encode_native_chat_request
from router.dialects.responses.fields import PRIVATE_FIELDS
from router.dialects.truncation import fit
from router.errors import NotSupported, UpstreamError, UpstreamRouteMissing
from router.response.machine import MachineOptions
from router.response.tokens import answers, estimate_tokens, estimated_prompt, prompt_chars
from router.settings.schema import EndpointSettings

__all__ = [
    "EmbeddingsAndRerank",
    "ModelSet",
    "UnsupportedOperations",
    "assembles",
    "cannot",
    "dropped_note",
    "either",
    "machine_options",
    "within_context",
]

_LACKING_FOR: Final = 600.0
_MOST_LACKING: Final = 1024
_SHOWN: Final = 200
"""Characters of a client's value that an error repeats."""

_DOES: Final[Mapping[AnswerKind, str]] = {
    AnswerKind.COMPLETIONS: "serve legacy completions",
    AnswerKind.EMBEDDINGS: "make embeddings",
    AnswerKind.RERANK: "rerank documents",
}


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


def cannot(kind: AnswerKind, exchange: Exchange, model: str) -> NotSupported:
    """For endpoints that cannot do this with a model."""
    name = (exchange.model or model)[:_SHOWN]
    return NotSupported(
        f"No endpoint that serves the model '{name}' can {_DOES[kind]} with it.", param="model"
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


_FRAME_TOKENS: Final = 4
"""What an item costs beside its text: its role and its ends."""

_LIMITS: Final = ("max_output_tokens", "max_completion_tokens", "max_tokens")

_RESERVED_PART: Final = 4
"""One part in so many is kept free for an answer of unknown length."""


def assembles(exchange: Exchange, endpoint: EndpointSettings) -> bool:
    """Whether the endpoint is asked for a stream of an answer that is wanted in one piece.

    Not of several answers at once, whose streams servers cut in ways of their own (llama.cpp has
    events of ``null`` between them), and not of speech, which is encoded otherwise in streams.
    """
    if exchange.stream or not endpoint.stream_whole_answers:
        return False
    body = exchange.body
    return answers(body) == 1 and "audio" not in (body.get("modalities") or ())


def machine_options(
    exchange: Exchange, body: dict[str, Any], *, forced_call: bool = False
) -> MachineOptions:
    """The options for reading the answer to ``body``, which is what an endpoint is asked."""
    return MachineOptions(
        custom_tools=custom_tool_names(body),
        forced_call=forced_call,
        logprobs=wants_logprobs(body),
        prompt_tokens=partial(estimated_prompt, body, exchange.prompts),
    )


def dropped_note(body: dict[str, Any]) -> dict[str, str]:
    """The header that says how much encrypted reasoning a translated endpoint was not sent: only
    the account that issued it can read it.
    """
    items = body.get("input")
    if isinstance(items, list) and (lost := sum(_is_encrypted(item) for item in items)):
        return {REASONING_DROPPED: str(lost)}
    return {}


def within_context(
    exchange: Exchange, body: dict[str, Any], context: int | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The body, of a response or of a chat, as it fits into a context of so many tokens, where it
    is to be cut (``Exchange.truncates``) and the context is known; and the header that says how
    many items or messages were dropped.
    """
    if context is None or not exchange.truncates:
        return body, {}
    field = "messages" if "messages" in body else "input"
    items = body.get(field)
    if not isinstance(items, list):
        return body, {}
    fixed = {name: body.get(name) for name in ("instructions", "tools")}
    budget = context - _reserve(body, context) - _tokens(fixed)
    kept, dropped = fit(
        items,
        budget_tokens=budget,
        count=lambda item: _FRAME_TOKENS + _tokens({field: [item]}),
        calls=(match_messages if field == "messages" else match)(items).calls,
    )
    if not dropped:
        return body, {}
    return {**body, field: kept}, {"X-Pointsman-Truncated": str(dropped)}


def _reserve(body: dict[str, Any], context: int) -> int:
    """The tokens kept free for the answer. A limit that is no limit says nothing of its length."""
    limits = (body.get(name) for name in _LIMITS)
    limit = next((most for most in limits if type(most) is int and most > 0), context)
    return limit if limit < context else context // _RESERVED_PART


def _tokens(fields: dict[str, Any]) -> int:
    return estimate_tokens(prompt_chars(fields))


def _is_encrypted(item: dict[str, Any]) -> bool:
    return item.get("type") == "reasoning" and bool(item.get("encrypted_content"))


_MAX_MODELS: Final = 1024


class ModelSet(dict[str, None]):
    """The models of which something was learned; past a bound the oldest is forgotten."""

    def discard(self, model: str) -> None:
        """It was not so."""
        self.pop(model, None)

    def add(self, model: str) -> None:
        """It was learned of this model."""
        self[model] = None
        if len(self) > _MAX_MODELS:
            del self[next(iter(self))]
