"""Requests translated into an endpoint's dialect, and what translated answers have to know.

``TranslatingAdapter`` is for every dialect that a folder of ``router.dialects`` declares;
``as_chat`` for Chat Completions at endpoints that do not speak them. ``machine_options``,
``within_context`` and ``dropped_note`` say what a translated answer has to know of its request, and
what its client is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import orjson

from router.balance.capability import reads_files
from router.core.exchange import AnswerKind, Exchange
from router.core.response_lifecycle import new_builder
from router.core.upstream import (
    REASONING_DROPPED,
    Listed,
    LoadRequest,
    UpstreamCall,
    UpstreamRequest,
    cannot_compact,
)
from router.dialects.chat.decode_request import check_translatable, decode_chat
from router.dialects.chat.encode_request import custom_tool_names, wants_logprobs
from router.dialects.chat.encode_stream import ChatEncoder
from router.dialects.dialect import EndpointDialect
from router.dialects.history import match
from router.dialects.input_files import FileForm, with_files
from router.dialects.responses.namespaces import GROUPED_ITEMS, GROUPED_TOOLS, flatten
from router.dialects.truncation import fit
from router.errors import InvalidRequest, NotSupported, UpstreamFailure
from router.response.builder import ResponseBuilder
from router.response.call_items import ToolName
from router.response.machine import MachineOptions
from router.response.tokens import answers, estimate_tokens, estimated_prompt, prompt_chars
from router.settings.schema import EndpointSettings
from router.settings.values import KeepAlive

__all__ = [
    "TranslatingAdapter",
    "as_chat",
    "assembles",
    "cannot",
    "dropped_note",
    "has_groups",
    "machine_options",
    "within_context",
]

_SHOWN: Final = 200
"""Characters of a client's value that an error repeats."""

_NO_NAMES: Final[Mapping[str, ToolName]] = {}

_DOES: Final[Mapping[AnswerKind, str]] = {
    AnswerKind.COMPLETIONS: "serve legacy completions",
    AnswerKind.EMBEDDINGS: "make embeddings",
    AnswerKind.RERANK: "rerank documents",
}


class TranslatingAdapter:
    """Implements ``router.core.upstream.Adapter`` for a dialect that a folder declares.

    Responses requests are encoded by ``dialect``, Chat Completions decoded first. What else there
    is (embeddings, a list of what is in memory …) is for the adapters of dialects that have it.
    """

    compacts: bool | None = False

    def __init__(self, endpoint: EndpointSettings, dialect: EndpointDialect) -> None:
        self._endpoint = endpoint
        self._dialect = dialect

    def respond(
        self, exchange: Exchange, model: str, builder: ResponseBuilder, context: int | None = None
    ) -> UpstreamCall:
        """See ``Adapter.respond``."""
        assembled = assembles(exchange, self._endpoint)
        return self._call(exchange.body, exchange, model, builder, context, assembled=assembled)

    def chat(self, exchange: Exchange, model: str, context: int | None = None) -> UpstreamCall:
        """See ``Adapter.chat``: it is translated."""
        assembled = assembles(exchange, self._endpoint)

        def respond(body: dict[str, Any], builder: ResponseBuilder) -> UpstreamCall:
            return self._call(body, exchange, model, builder, None, assembled=assembled)

        return as_chat(exchange, context, respond, reasoning=True)

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
        """The call for this Responses request; ``assembled`` as ``UpstreamCall.assembles``,
        ``usage`` as for ``EncodeRequest``.
        """
        response_headers: dict[str, str] = {}
        if exchange.files:
            body = with_files(body, exchange.files, self.file_form(exchange, model) or "text")
        given, names = body, _NO_NAMES
        if has_groups(body):
            flat = flatten(body)
            given, names = flat.body, flat.names
        if context is not None and exchange.truncates:
            given, response_headers = within_context(exchange, given, context)
        encoded = self._dialect.encode(
            given,
            model=model,
            stream=exchange.stream or assembled,
            usage=usage,
            settings=self._endpoint,
            images=exchange.images,
        )
        lost = encoded.foreign_reasoning
        if lost is None:
            if isinstance(given.get("input"), list):
                response_headers = {**dropped_note(given), **response_headers}
        elif lost:
            response_headers[REASONING_DROPPED] = str(lost)
        options = machine_options(
            exchange,
            given,
            names,
            forced_call=encoded.forced_call,
            documents=encoded.documents,
        )
        return UpstreamCall(
            UpstreamRequest(encoded.path, orjson.dumps(encoded.body), exchange.stream),
            self._dialect.decoder(builder, options),
            response_headers,
            dropped=encoded.dropped,
            assembles=assembled,
        )

    def completions(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.completions``: the dialect has none."""
        raise cannot(AnswerKind.COMPLETIONS, exchange, model)

    def embed(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.embed``: the dialect has none."""
        raise cannot(AnswerKind.EMBEDDINGS, exchange, model)

    def rerank(self, exchange: Exchange, model: str) -> UpstreamCall:
        """See ``Adapter.rerank``: the dialect cannot."""
        raise cannot(AnswerKind.RERANK, exchange, model)

    def takes_urls(self, exchange: Exchange) -> bool:
        """See ``Adapter.takes_urls``."""
        return True

    def file_form(self, exchange: Exchange, model: str) -> FileForm | None:
        """See ``Adapter.file_form``: most models read text only."""
        return "data" if reads_files(self._endpoint.capabilities, model) else "text"

    def count_tokens(self, exchange: Exchange, model: str) -> UpstreamRequest | None:
        """See ``Adapter.count_tokens``: the dialect has no counter."""
        return None

    def compact(self, exchange: Exchange, model: str, builder: ResponseBuilder) -> UpstreamCall:
        """See ``Adapter.compact``: the dialect cannot."""
        raise cannot_compact(exchange.model or model)

    def forget(self, before: float) -> None:
        """See ``Adapter.forget``: nothing is learned."""

    def models_path(self) -> str:
        """See ``Adapter.models_path``."""
        return self._dialect.models_path

    def models(self, listing: Any) -> list[Listed]:
        """See ``Adapter.models``."""
        return [Listed(name) for name in self._dialect.model_names(listing)]

    def context_path(self) -> str | None:
        """See ``Adapter.context_path``: there is no such place."""
        return None

    def context(self, properties: Any) -> int | None:
        """See ``Adapter.context``."""
        return None

    def loaded_path(self) -> str | None:
        """See ``Adapter.loaded_path``: it is not told."""
        return None

    def loaded(self, listing: Any) -> list[str]:
        """See ``Adapter.loaded``."""
        raise UpstreamFailure("This kind of endpoint has no list of what is in memory.")

    def load(self, model: str, keep_alive: KeepAlive | None = None) -> LoadRequest | None:
        """See ``Adapter.load``: it cannot be asked to."""
        return None

    def load_seconds(self, body: bytes) -> float | None:
        """See ``Adapter.load_seconds``: it is never told."""
        return None


def cannot(kind: AnswerKind, exchange: Exchange, model: str) -> NotSupported:
    """For endpoints that cannot do this with a model."""
    name = (exchange.model or model)[:_SHOWN]
    return NotSupported(
        f"No endpoint that serves the model '{name}' can {_DOES[kind]} with it.", param="model"
    )


def as_chat(
    exchange: Exchange,
    context: int | None,
    respond: Callable[[dict[str, Any], ResponseBuilder], UpstreamCall],
    *,
    reasoning: bool,
) -> UpstreamCall:
    """The call for a Chat Completions request, made by ``respond`` of a Responses request.

    Its messages are cut to ``context`` where they are to be (see ``within_context``).
    ``reasoning`` is whether the endpoint takes that of earlier turns. Raises InvalidRequest for
    what cannot be carried, in the chat's words.
    """
    chat, response_headers = within_context(exchange, exchange.body, context)
    check_translatable(chat)
    given = exchange.decoded if chat is exchange.body else decode_chat(chat)
    if not reasoning:
        given = given.without_reasoning()
    body = {**given.body, "model": exchange.shown_model}
    builder = new_builder(body, muted=not exchange.stream)
    try:
        call = respond(body, builder)
    except InvalidRequest as error:
        error.param = error.param and given.named(error.param)
        raise
    call.response_headers.update(response_headers)
    options = exchange.body.get("stream_options") or {}
    call.decoder = ChatEncoder(
        call.decoder, wants_usage=bool(options.get("include_usage")), muted=not exchange.stream
    )
    call.dropped = (*given.dropped, *map(given.named, call.dropped))
    call.named = given.named
    return call


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


def has_groups(body: Mapping[str, Any]) -> bool:
    """Whether a Responses request has what ``flatten`` is for."""
    for tool in body.get("tools") or ():
        if tool["type"] in GROUPED_TOOLS or tool.get("defer_loading"):
            return True
    items = body.get("input")
    if type(items) is list:
        for item in items:
            if "namespace" in item or item.get("type") in GROUPED_ITEMS:
                return True
    return False


def machine_options(
    exchange: Exchange,
    body: dict[str, Any],
    names: Mapping[str, ToolName] = _NO_NAMES,
    *,
    forced_call: bool = False,
    documents: tuple[str, ...] = (),
) -> MachineOptions:
    """The options for reading the answer to ``body``, which is what an endpoint is asked;
    ``names`` are those of ``FlatRequest``.
    """
    return MachineOptions(
        tool_names=names,
        custom_tools=custom_tool_names(body) if body.get("tools") else frozenset(),
        forced_call=forced_call,
        documents=documents,
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
    is_chat = exchange.request.operation.kind is AnswerKind.CHAT
    field = "messages" if is_chat else "input"
    items = body.get(field)
    if not isinstance(items, list):
        return body, {}
    fixed = {name: body.get(name) for name in ("instructions", "tools")}
    budget = context - _reserve(body, context) - _tokens(fixed)
    kept, dropped = fit(
        items,
        budget_tokens=budget,
        count=lambda item: _FRAME_TOKENS + _tokens({field: [item]}),
        calls=exchange.decoded.calls() if is_chat else match(items).calls,
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
