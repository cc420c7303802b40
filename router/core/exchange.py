"""One request's life, and the contract by which its answer travels.

``Exchange`` is what guards, interceptors, the pipeline and observers hand to each other.
``Sink`` is where an answer goes: pushed, never pulled. Whoever produces it calls ``open`` and
``feed`` for a stream, or ``finish`` for a body in one piece, and ``end`` once at the end. All of
these are synchronous: everything found in one network read is one batch and one call, and no task
wakes up per event. A producer that finds ``paused`` set stops reading and awaits ``resumed()``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar

from router.core.key import Key
from router.core.native_request import NativeRequest
from router.core.usage_record import Spent
from router.dialects.api_format import OPENAI, ApiFormat
from router.dialects.chat.decode_request import DecodedChat, decode_chat
from router.dialects.input_files import InputFile
from router.dialects.operation import AnswerKind, Operation
from router.errors import InternalError, RouterError
from router.response.builder import ResponseBuilder
from router.response.frame import Frame
from router.telemetry.tasks import Worker
from router.telemetry.trace import Trace

if TYPE_CHECKING:
    from router.balance.averages import PromptTokens
    from router.core.known_requests import KnownRequest
    from router.core.plugin_chain import PluginSet

__all__ = [
    "AnswerKind",
    "ClientGone",
    "ClientRequest",
    "Exchange",
    "ExchangeContext",
    "ExchangeRecord",
    "ExchangeResult",
    "Operation",
    "Outcome",
    "PassingSink",
    "Sink",
    "internal_error",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Outcome(Enum):
    """How an exchange ended; the value is its name in metrics and logs."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ClientGone(Exception):
    """The client closed its connection; there is nobody left to answer."""


class Sink(Protocol):
    """Where an answer goes. Implemented by the HTTP reply, and by interceptors that listen."""

    @property
    def paused(self) -> bool:
        """The client reads more slowly than the endpoint writes: stop until ``resumed()``."""
        ...

    @property
    def opened(self) -> bool:
        """Whether a stream's head has gone out: errors can no longer be a plain HTTP answer."""
        ...

    async def resumed(self) -> None:
        """Wait until ``paused`` is over; raises ClientGone."""
        ...

    def open(self, headers: Mapping[str, str]) -> None:
        """Begin a stream of server-sent events with these extra headers."""
        ...

    def feed(self, batch: Sequence[Frame]) -> None:
        """Events, in order, written with one call; raises ClientGone."""
        ...

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """A whole JSON answer; ends the answer."""
        ...

    def end(self) -> None:
        """End the stream."""
        ...


class PassingSink:
    """A ``Sink`` in front of another one: whatever is not overridden passes through."""

    __slots__ = ("_sink",)

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @property
    def paused(self) -> bool:
        """See ``Sink.paused``."""
        return self._sink.paused

    @property
    def opened(self) -> bool:
        """See ``Sink.opened``."""
        return self._sink.opened

    async def resumed(self) -> None:
        """See ``Sink.resumed``."""
        await self._sink.resumed()

    def open(self, headers: Mapping[str, str]) -> None:
        """See ``Sink.open``."""
        self._sink.open(headers)

    def feed(self, batch: Sequence[Frame]) -> None:
        """See ``Sink.feed``."""
        self._sink.feed(batch)

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """See ``Sink.finish``."""
        self._sink.finish(status, body, headers)

    def end(self) -> None:
        """See ``Sink.end``."""
        self._sink.end()


class ExchangeRecord(Protocol):
    """What is kept of the response to one exchange; none where nothing is to be stored.

    ``encrypted_reasoning`` is encrypted reasoning by item id that the client did not ask for.
    """

    async def finish(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str], last: Frame | None
    ) -> bool:
        """Commit the final Response object, before ``last``, its terminal event, leaves.

        False where the configuration has it served without being stored. Raises RouterError
        where it could not be stored, and the client is to be told so.
        """
        ...

    def abandon(self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]) -> None:
        """The client left: keep what there is of the response, without waiting for it."""
        ...


class ClientRequest(NamedTuple):
    """What came in, as far as it is known before the body is read. It never changes. ``route`` is
    the template of the path, ``path`` the path itself where it is no route's; ``started`` is of
    ``time.monotonic``, in seconds.
    """

    id: str
    operation: Operation
    route: str
    method: str
    headers: Mapping[str, str]
    remote: str | None
    started: float
    path: str | None = None


@dataclass(slots=True, eq=False, repr=False)
class ExchangeContext:
    """What a request is answered in: who asks, and with whose help.

    ``caller`` is the name of the key that was presented (``default`` in open mode); it is what
    objects belong to; ``key`` is that key. ``plugin_set`` are the plugins that the exchange began
    with and ends with; whoever lets it in sets that. ``api_format`` is that of the API's answers.
    ``worker`` does what takes long (see ``Exchange.compute``). ``trace`` is told of the attempts.
    ``truncates_chat`` is ``server.chat_truncation`` for a request to Chat Completions.
    """

    api_format: ApiFormat = OPENAI
    worker: Worker | None = None
    caller: str = "default"
    key: Key | None = None
    trace: Trace | None = None
    truncates_chat: bool = False
    plugin_set: PluginSet = field(init=False)


@dataclass(slots=True, eq=False, repr=False)
class ExchangeResult:
    """How an exchange was answered. Its methods, and the plugin chain when it is over, are what
    writes how it ended.

    ``headers`` are headers for the answer. ``endpoint`` and ``account`` served it, ``attempts`` is
    how many were made; ``served_model`` is the model of ``fallbacks`` that answers in the place of
    the one that was asked for. ``usage`` is a Responses ``usage`` object, whatever the endpoint
    speaks; ``spent`` is what all attempts came to. ``cache`` says what the response cache had to do
    with it (``hit`` …), ``limit`` which limit or budget refused it. ``queue_seconds`` are those
    that it waited for slots, and for models to be loaded. ``partial`` says that the endpoint which
    answers was not sent everything that was asked, ``passed`` that it was sent the client's own
    request (``NativeRequest``). Times are of ``time.monotonic``, in seconds.
    """

    status: int = 0
    outcome: Outcome | None = None
    error_code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    endpoint: str | None = None
    account: str | None = None
    served_model: str | None = None
    attempts: int = 0
    usage: dict[str, Any] | None = None
    spent: Spent | None = None
    cache: str | None = None
    limit: str | None = None
    queue_seconds: float = 0.0
    partial: bool = False
    passed: bool = False
    first_output: float | None = None
    finished: float | None = None

    def fail(self, code: str | None) -> None:
        """The answer, which has begun or is complete, ends with this error's code in the log."""
        self.outcome = Outcome.FAILED
        self.error_code = code

    def set_error(self, error: RouterError) -> None:
        """The answer is this error, or ends with it."""
        self.error_code = error.code
        self.status = error.status

    def take_over(self, other: ExchangeResult, *, leads: bool) -> None:
        """What answered ``other`` answers this exchange, too. ``leads``: it was asked for this
        one, whose attempts they are.
        """
        self.account, self.served_model = other.account, other.served_model
        if leads:
            self.endpoint, self.attempts = other.endpoint, other.attempts
        if self.outcome is None:
            self.outcome, self.error_code = other.outcome, other.error_code

    def add_turn(self, turn: ExchangeResult) -> None:
        """A turn of the answer (``tools.loop``) came to this; what it cost is counted already."""
        self.account, self.served_model = turn.account, turn.served_model
        self.endpoint, self.partial = turn.endpoint, turn.partial
        self.attempts += turn.attempts
        self.queue_seconds += turn.queue_seconds
        self.headers.update(turn.headers)
        if turn.outcome is not None:
            self.outcome, self.error_code = turn.outcome, turn.error_code

    def take_costs(self, other: ExchangeResult) -> None:
        """What the call of ``other`` used and waited for counts as this exchange's own."""
        self.usage, self.spent = other.usage, other.spent
        self.queue_seconds = other.queue_seconds


@dataclass(slots=True, eq=False, repr=False)
class Exchange:
    """One request, from its head to its last byte: what came in (``request``), what it is answered
    in (``context``), how it is answered (``result``), and what is asked for now.

    ``body`` is a request of the API that ``request.operation`` says, ``model`` the model that it
    names, ``stream`` whether the client wants events. ``dropped`` are the fields of a foreign API's
    request that a Responses request cannot carry. ``images`` are those that were fetched for
    endpoints that take no URLs: base64 by URL. ``files`` are those that were got for endpoints that
    read others, or none, by ``file_key``. ``large``: what is done with all of its body takes
    long. ``builder`` is the response under construction where it was begun before the exchange (a
    background run), ``record`` what becomes of it in the end. ``prompts`` is what is known of the
    prompts of the deployment that is asked. ``running`` says that a task of its own works on it and
    ends it, ``abort`` why the router itself ends it before its time. ``turn`` is the number of the
    turn, from 1, where it is one of several that the router makes an answer of (``tools.loop``).
    ``native`` is the request for endpoints that speak its API; one that is derived has none.
    ``known`` is what it is remembered by where its bytes say all that is asked.
    """

    request: ClientRequest
    context: ExchangeContext
    result: ExchangeResult = field(default_factory=ExchangeResult)
    body: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    stream: bool = False
    dropped: tuple[str, ...] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, InputFile] = field(default_factory=dict)
    large: bool = False
    builder: ResponseBuilder | None = None
    record: ExchangeRecord | None = None
    prompts: PromptTokens | None = None
    running: bool = False
    abort: RouterError | None = None
    turn: int = 0
    native: NativeRequest | None = None
    known: KnownRequest | None = None
    _decoded: DecodedChat | None = field(default=None, init=False)

    async def compute(self, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """What ``work`` returns, or raises; for a large request it is done by another thread, so
        that the event loop can serve everybody else meanwhile. Without a ``worker`` nothing is.
        """
        worker = self.context.worker
        if worker is None or not self.large:
            return work(*args, **kwargs)
        return await worker.run(partial(work, *args, **kwargs))

    def ask(self, body: dict[str, Any], dropped: tuple[str, ...] = ()) -> None:
        """Ask for what this body, which names a model, says."""
        self.body = body
        self.dropped = dropped
        self.model = body["model"]
        self.stream = bool(body.get("stream"))

    def ask_instead(self, model: str) -> None:
        """Have ``model`` asked, from here on down the plugin chain. The answer names it, but that
        of a background run, whose client has been told another.

        Whether its key may use that model is for whoever calls this to look at.
        """
        body = {**self.body, "model": model}
        if self.native is not None and self.native.decoded is self.body:
            self.native.decoded = body
        self.model, self.body = model, body

    @property
    def decoded(self) -> DecodedChat:
        """The chat that is asked for as a Responses request: decoded once, if it is needed."""
        if self._decoded is None or not self._decoded.is_of(self.body):
            self._decoded = decode_chat(self.body)
        return self._decoded

    @property
    def responses_body(self) -> dict[str, Any]:
        """The body in the form of a Responses request, whichever API it is of. Of what is no
        question (embeddings …) it is the body itself.
        """
        return self.decoded.body if self.request.operation.kind is AnswerKind.CHAT else self.body

    def named(self, field: str) -> str:
        """What the client's API calls a field of ``responses_body``."""
        is_chat = self.request.operation.kind is AnswerKind.CHAT
        return self.decoded.named(field) if is_chat else field

    @property
    def truncates(self) -> bool:
        """Whether the oldest turns are left out where they do not fit into the model's context:
        Chat Completions has no field for that, but a setting.
        """
        if self.request.operation.kind is AnswerKind.CHAT:
            return self.context.truncates_chat
        return self.body.get("truncation") == "auto"

    @property
    def passes(self) -> NativeRequest | None:
        """``native``, unless a plugin has given the exchange another body: that one counts then."""
        native = self.native
        return native if native is not None and native.decoded is self.body else None

    @property
    def incomplete(self) -> bool:
        """Whether ``body`` says less than what the client asked."""
        native = self.native
        lost = native is not None and (native.dropped_reasoning or native.refused is not None)
        return bool(self.dropped or lost)

    @property
    def shown_model(self) -> str:
        """The model by the name that the client is told: as it asked, or the fallback's."""
        return self.result.served_model or self.model or ""

    def derive(self, body: dict[str, Any], plugin_set: PluginSet) -> Exchange:
        """Another exchange for the same request, with this body, that has not been answered yet.

        It has no record, and what only the client of this one is told (the result's headers,
        ``dropped``) is not its affair.
        """
        ours = self.context
        context = ExchangeContext(ours.api_format, ours.worker)
        context.plugin_set = plugin_set
        context.caller, context.key = ours.caller, ours.key
        context.trace, context.truncates_chat = ours.trace, ours.truncates_chat
        derived = Exchange(self.request, context)
        derived.body = body
        derived.model, derived.stream = self.model, self.stream
        derived.images, derived.files, derived.large = self.images, self.files, self.large
        derived._decoded = self._decoded
        return derived


def internal_error(exchange: Exchange) -> InternalError:
    """What the client is told of a bug: where to find it in the log, nothing more."""
    return InternalError(
        f"Internal error; the log has more under the request id {exchange.request.id}."
    )
