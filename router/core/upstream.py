"""What an endpoint's adapter and its transport promise to the pipeline."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from router.core.exchange import AnswerKind, Exchange
from router.dialects.input_files import FileForm
from router.errors import NotSupported, UpstreamError
from router.response.builder import ResponseBuilder
from router.response.decoder import StreamDecoder
from router.settings.schema import EndpointSettings
from router.settings.values import KeepAlive

__all__ = [
    "ANTHROPIC_VERSION",
    "DIRECT",
    "REASONING_DROPPED",
    "Adapter",
    "Deadlines",
    "Listed",
    "LoadRequest",
    "Transport",
    "UpstreamCall",
    "UpstreamRequest",
    "UpstreamResponse",
    "account_of",
    "cannot_compact",
    "leaves_memory",
    "redacted",
]

REASONING_DROPPED: Final = "X-Pointsman-Reasoning-Dropped"
"""The header that says how many items of encrypted reasoning another account had issued."""

ANTHROPIC_VERSION: Final = ("anthropic-version", "2023-06-01")
"""The header that Anthropic's API needs, and the version that is spoken here."""

_SHOWN: Final = 200
"""Characters of a client's value that an error repeats."""


def account_of(endpoint: EndpointSettings) -> str:
    """A short mark of the account behind an endpoint: its URL and key, hashed.

    Encrypted reasoning is readable only to the account that issued it.
    """
    key = endpoint.api_key.get_secret_value() if endpoint.api_key is not None else ""
    text = f"{endpoint.url}\0{key}".encode()
    return hashlib.blake2s(text, digest_size=6, person=b"account").hexdigest()


def redacted(endpoint: EndpointSettings, text: str) -> str:
    """What an endpoint said, without its key: some quote it when they refuse it."""
    key = endpoint.api_key
    return text if key is None else text.replace(key.get_secret_value(), "[api_key]")


def cannot_compact(model: str) -> NotSupported:
    """For endpoints that have no way to compact a conversation."""
    return NotSupported(
        f"No endpoint that serves the model '{model[:_SHOWN]}' can compact a conversation. Send "
        "'truncation': 'auto' to have the oldest turns left out instead."
    )


def leaves_memory(keep_alive: KeepAlive | None) -> bool:
    """Whether a model that is kept for so long is not kept at all."""
    if isinstance(keep_alive, str):
        return not float(keep_alive.rstrip("nuµmsh"))
    return keep_alive == 0


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Deadlines in seconds, like those of the endpoint's ``timeouts``."""

    first_byte: float
    idle: float
    total: float


@dataclass(slots=True)  # frozen it would take three times as long to make
class UpstreamRequest:
    """A POST to an endpoint, or with ``method`` another request. ``path`` is relative to the
    endpoint's URL; ``headers`` are more than those that every request has. ``stream``: its first
    byte is waited for until ``timeouts.first_byte``, and not for as long as a whole answer takes.
    ``patience`` takes the place of the endpoint's ``timeouts``.
    """

    path: str
    body: bytes
    stream: bool
    headers: Mapping[str, str] | None = None
    method: str = "POST"
    patience: Deadlines | None = None


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A POST that brings a model into memory, or with ``unloads`` takes it out.

    ``path`` is relative to the endpoint's URL; with ``unversioned`` to that without its ``/v1``.
    ``at_once``: the answer does not wait for the load, the list of models tells how it goes.
    ``instead`` is what to send where the model is not one that generates.
    """

    path: str
    body: bytes
    unloads: bool = False
    unversioned: bool = False
    at_once: bool = False
    instead: LoadRequest | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A model as an endpoint lists it.

    ``loaded`` is whether it is in memory, None where the list does not tell; ``loading`` whether
    it is on its way there. ``context_length`` is in tokens, input and output. ``outlives_clients``
    is whether its server goes on with an answer in one piece when its client has left.
    """

    name: str
    loaded: bool | None = None
    context_length: int | None = None
    loading: bool = False
    outlives_clients: bool = False


class UpstreamResponse(Protocol):
    """An endpoint's answer whose head has arrived, with status 200.

    ``is_json``: it is one piece of JSON, by its Content-Type. ``tells_limits``: its headers say
    what is left of a rate limit. ``complete``: its end has arrived.
    """

    is_json: bool
    tells_limits: bool
    complete: bool

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers, looked up without regard to case."""
        ...

    def take(self) -> bytes | None:
        """Everything that has arrived since it was last taken, at least one byte; empty at the end,
        None where there is nothing yet.

        Raises UpstreamTimeout past the idle or total deadline, UpstreamFailure when the
        connection breaks.
        """
        ...

    def news(self) -> Awaitable[None]:
        """What to wait for when there was nothing to take. Only the time that is waited counts
        against the idle deadline.
        """
        ...

    async def each(self, take: Callable[[bytes], bool]) -> None:
        """Have ``take`` called with what arrives, as it arrives and without waking the caller,
        until it returns False or there is something else to see to: an end, a failure, a deadline.
        Raises what ``take`` raises. Where there is something to take already, it returns at once.
        """
        ...

    async def read(self) -> bytes:
        """What there is to take, as soon as there is anything. Raises like ``take``."""
        ...

    async def body(self) -> bytes:
        """The rest, whole. Raises like ``take``, and UpstreamFailure past a size limit."""
        ...

    async def settle(self) -> None:
        """Wait a moment for the end of a body whose content is complete, to keep the connection."""
        ...

    def close(self) -> None:
        """Done with it. What has not been read is cut off: the endpoint notices at once."""
        ...


class Transport(Protocol):
    """The pooled connections to one endpoint."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send and wait for the head.

        Raises UpstreamUnavailable when no connection can be made, UpstreamTimeout past the first
        byte or total deadline, UpstreamFailure when the connection breaks, and for a status other
        than 200 the UpstreamError that it means.
        """
        ...

    async def get(
        self, path: str, timeout: float, *, unversioned: bool = False
    ) -> tuple[int, bytes]:
        """Status and body of a GET that must be over in ``timeout`` seconds. Raises like ``send``.

        ``path`` is relative to the endpoint's URL, or with ``unversioned`` to that without its
        ``/v1``.
        """
        ...

    async def post(self, request: LoadRequest, timeout: float) -> tuple[int, bytes]:
        """Status and body of a POST that must be over in ``timeout`` seconds. Raises like
        ``get``.
        """
        ...

    def retire(self) -> None:
        """Begin nothing new: what is under way may end, and then no connection is kept."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a connection is open."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


@dataclass(slots=True)
class UpstreamCall:
    """One attempt at an answer: what to send, and what reads it."""

    request: UpstreamRequest
    decoder: StreamDecoder
    response_headers: dict[str, str] = field(default_factory=dict)
    """Headers for the client's answer: what was dropped."""
    retry: Callable[[UpstreamError], bool] | None = None
    """Asked when the endpoint rejects the request, or has no such route or model. True: the adapter
    has learned from it, and the call prepared anew is another one, to be sent to the same endpoint
    at once."""
    dropped: tuple[str, ...] = ()
    """The fields, and types of tools, that the endpoint's dialect cannot carry: they are named in
    the answer, or refused."""
    assembles: bool = False
    """The answer comes as a stream, but is wanted in one piece; see
    ``EndpointSettings.stream_whole_answers``."""
    passes: Callable[[Mapping[str, str]], dict[str, str]] | None = None
    """The answer passes as it came to a client that speaks the endpoint's API, with the headers
    that this picks of its own."""
    named: Callable[[str], str] | None = None
    """What the client calls a field that the endpoint complains of; None: the same."""


class Adapter(Protocol):
    """How one dialect is spoken. Pure but for its endpoint's settings.

    ``compacts`` is whether the endpoint compacts conversations itself, None where it is not known.
    """

    compacts: bool | None

    def respond(
        self, exchange: Exchange, model: str, builder: ResponseBuilder, context: int | None = None
    ) -> UpstreamCall:
        """Translate a Responses request. Raises InvalidRequest for what cannot be expressed.

        ``context`` is that of the model here, in tokens, as far as is known: what a request that
        ``truncates`` is cut to.
        """
        ...

    def chat(self, exchange: Exchange, model: str, context: int | None = None) -> UpstreamCall:
        """Pass a Chat Completions request on, or translate it like ``respond``; ``context`` as
        there.
        """
        ...

    def completions(self, exchange: Exchange, model: str) -> UpstreamCall:
        """Pass a legacy completions request on."""
        ...

    def embed(self, exchange: Exchange, model: str) -> UpstreamCall:
        """Have embeddings made; the answer is in OpenAI's form. Raises InvalidRequest like
        ``respond``, and NotSupported where the endpoint has said that it cannot.
        """
        ...

    def rerank(self, exchange: Exchange, model: str) -> UpstreamCall:
        """Have documents ranked; raises like ``embed``."""
        ...

    def takes_urls(self, exchange: Exchange) -> bool:
        """Whether it is sent the URLs of this request's images, not their data
        (``Exchange.images``).
        """
        ...

    def file_form(self, exchange: Exchange, model: str) -> FileForm | None:
        """In what form it is sent this request's files (``Exchange.files``); None where it is sent
        them as they came.
        """
        ...

    def count_tokens(self, exchange: Exchange, model: str) -> UpstreamRequest | None:
        """The endpoint's own token counter, where the dialect has one."""
        ...

    def compact(self, exchange: Exchange, model: str, builder: ResponseBuilder) -> UpstreamCall:
        """Have a conversation compacted. Raises NotSupported where the dialect cannot, and
        InvalidRequest like ``respond``.
        """
        ...

    def forget(self, before: float) -> None:
        """Forget what refusals have taught before this time (``time.monotonic``): the endpoint may
        have been upgraded since.
        """
        ...

    def models_path(self) -> str:
        """Where the endpoint lists its models."""
        ...

    def models(self, listing: Any) -> list[Listed]:
        """The models in that list; raises UpstreamFailure when it is not one.

        Whatever else it says of a model is left out where it is odd.
        """
        ...

    def context_path(self) -> str | None:
        """Where the endpoint tells the context of its model, if it was not in its list of models.

        It is relative to the endpoint's URL without its ``/v1``.
        """
        ...

    def context(self, properties: Any) -> int | None:
        """The context in tokens that is told there; None where it is not."""
        ...

    def loaded_path(self) -> str | None:
        """Where the endpoint tells what is in memory, if it is not in its list of models."""
        ...

    def loaded(self, listing: Any) -> list[str]:
        """The models in memory, from what is told there; raises UpstreamFailure when it is
        something else.
        """
        ...

    def load(self, model: str, keep_alive: KeepAlive | None = None) -> LoadRequest | None:
        """What brings a model into memory, to be kept there for ``keep_alive`` (None: as long as
        is configured); zero takes it out. None where the endpoint cannot be asked to.
        """
        ...

    def load_seconds(self, body: bytes) -> float | None:
        """What a load took, as the answer to ``load`` tells it; None where it does not."""
        ...


DIRECT: Final[Mapping[AnswerKind, Callable[[Adapter, Exchange, str, int | None], UpstreamCall]]] = {
    AnswerKind.CHAT: lambda adapter, exchange, model, context: adapter.chat(
        exchange, model, context
    ),
    AnswerKind.COMPLETIONS: lambda adapter, exchange, model, _: adapter.completions(
        exchange, model
    ),
    AnswerKind.EMBEDDINGS: lambda adapter, exchange, model, _: adapter.embed(exchange, model),
    AnswerKind.RERANK: lambda adapter, exchange, model, _: adapter.rerank(exchange, model),
}
"""Calls whose answer is no response that could be kept: there is no response builder of one."""
