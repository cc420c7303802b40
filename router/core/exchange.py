"""One request's life, and the contract by which its answer travels.

``Exchange`` is what guards, interceptors, the pipeline and observers hand to each other.
``Sink`` is where an answer goes: pushed, never pulled. Whoever produces it calls ``open`` and
``feed`` for a stream, or ``finish`` for a body in one piece, and ``end`` once at the end. All of
these are synchronous: everything found in one network read is one batch and one call, and no task
wakes up per event. A producer that finds ``paused`` set stops reading and awaits ``resumed()``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

from router.core.key import Key
from router.core.usage_record import Spent
from router.dialects.api_format import OPENAI, ApiFormat
from router.dialects.operation import AnswerKind, Operation
from router.errors import InternalError, RouterError
from router.response.builder import ResponseBuilder
from router.response.frame import Frame
from router.telemetry.tasks import Worker
from router.telemetry.trace import Trace

if TYPE_CHECKING:
    from router.balance.averages import PromptTokens
    from router.core.plugin_set import PluginSet

__all__ = [
    "AnswerKind",
    "ClientGone",
    "Exchange",
    "ExchangeRecord",
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


_OF_THE_REQUEST: Final = (
    "caller",
    "api_format",
    "headers",
    "id",
    "images",
    "key",
    "large",
    "method",
    "model",
    "operation",
    "path",
    "remote",
    "route",
    "started",
    "stream",
    "trace",
    "truncates_chat",
    "worker",
)
"""What is true of every exchange that is made for the same request: ``Exchange.derive`` copies it.

A slot that is added has to go here or below, so that whoever adds it decides.
"""

_OF_THE_ANSWER: Final = (
    "abort",
    "account",
    "attempts",
    "body",
    "cache",
    "builder",
    "endpoint",
    "error_code",
    "finished",
    "first_output",
    "plugin_set",
    "limit",
    "response_headers",
    "outcome",
    "partial",
    "prompts",
    "record",
    "running",
    "served_model",
    "spent",
    "status",
    "dropped",
    "usage",
    "queue_seconds",
)
"""What each exchange has of its own: how it is answered, and what its own client is told."""


class Exchange:
    """One request, from its head to its last byte.

    ``caller`` is the name of the key that was presented (``default`` in open mode); it is what
    objects belong to; ``key`` is that key. Times are of ``time.monotonic``, in seconds.
    ``response_headers`` are headers for the answer. ``running`` says that a task of its own works
    on it and ends it, ``abort`` why the router itself ends it before its time. ``builder`` is the
    response under construction where it was begun before the exchange (a background run),
    ``record`` what becomes of it in the end, ``account`` the endpoint account that served it.
    ``usage`` is a Responses ``usage`` object, whatever the endpoint speaks; ``spent`` is what all
    attempts came to. ``plugin_set`` are the plugins that it began with and ends with; whoever lets
    it in sets that. ``served_model`` is the model of ``fallbacks`` that answers in the place of
    ``model``. ``cache`` says what the response cache had to do with it (``hit`` …). ``trace`` is
    told of its attempts. ``queue_seconds`` are those that it waited for slots, and for models to be
    loaded. ``api_format`` is that of its API's answers. ``limit`` is which limit or budget refused
    it. ``dropped`` are the fields of a foreign API's request that a Responses request cannot carry.
    ``partial`` says that the endpoint which answers was not sent everything that was asked.
    ``images`` are those that were fetched for endpoints that take no URLs: base64 by URL.
    ``large``: what is done with all of its body takes long, and ``worker`` does it then (see
    ``compute``). ``path`` is what was asked for where that is no route. ``truncates_chat`` is
    ``server.chat_truncation`` for a request to Chat Completions.
    """

    __slots__ = (*_OF_THE_REQUEST, *_OF_THE_ANSWER)

    plugin_set: PluginSet

    def __init__(
        self,
        *,
        id: str,
        operation: Operation,
        route: str,
        method: str,
        headers: Mapping[str, str],
        remote: str | None,
        started: float,
        api_format: ApiFormat = OPENAI,
        worker: Worker | None = None,
    ) -> None:
        self.id = id
        self.operation = operation
        self.route = route
        self.method = method
        self.headers = headers
        self.remote = remote
        self.started = started
        self.api_format = api_format
        self.worker = worker
        self.caller = "default"
        self.key: Key | None = None
        self.body: dict[str, Any] = {}
        self.model: str | None = None
        self.served_model: str | None = None
        self.stream = False
        self.builder: ResponseBuilder | None = None
        self.record: ExchangeRecord | None = None
        self.endpoint: str | None = None
        self.account: str | None = None
        self.running = False
        self.attempts = 0
        self.abort: RouterError | None = None
        self.first_output: float | None = None
        self.finished: float | None = None
        self.usage: dict[str, Any] | None = None
        self.spent: Spent | None = None
        self.trace: Trace | None = None
        self.queue_seconds = 0.0
        self.status = 0
        self.cache: str | None = None
        self.outcome: Outcome | None = None
        self.partial = False
        self.prompts: PromptTokens | None = None
        self.error_code: str | None = None
        self.limit: str | None = None
        self.response_headers: dict[str, str] = {}
        self.dropped: tuple[str, ...] = ()
        self.images: Mapping[str, str] = {}
        self.large = self.truncates_chat = False
        self.path: str | None = None

    async def compute(self, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """What ``work`` returns, or raises; for a large request it is done by another thread, so
        that the event loop can serve everybody else meanwhile. Without a ``worker`` nothing is.
        """
        if self.worker is None or not self.large:
            return work(*args, **kwargs)
        return await self.worker.run(partial(work, *args, **kwargs))

    @property
    def truncates(self) -> bool:
        """Whether the oldest turns are left out where they do not fit into the model's context.

        Chat Completions has no field for that: it is a setting there.
        """
        if self.operation.kind is AnswerKind.CHAT:
            return self.truncates_chat
        return self.body.get("truncation") == "auto"

    def mark_failed(self, code: str | None) -> None:
        """Its answer, which has begun or is complete, ends with this error's code in the log."""
        self.outcome = Outcome.FAILED
        self.error_code = code

    @property
    def shown_model(self) -> str:
        """The model by the name that the client is told: as it asked, or the fallback's."""
        return self.served_model or self.model or ""

    def ask_instead(self, model: str) -> None:
        """Have ``model`` asked, from here on down the plugin chain. The answer names it, but that
        of a background run, whose client has been told another.

        Whether its key may use that model is for whoever calls this to look at.
        """
        self.model, self.body = model, {**self.body, "model": model}

    def derive(self, body: dict[str, Any], plugin_set: PluginSet) -> Exchange:
        """Another exchange for the same request, with this body, that has not been answered yet.

        It has no record, and what only the client of this one is told (``response_headers``,
        ``dropped``) is not its affair.
        """
        derived = Exchange(
            id=self.id,
            operation=self.operation,
            route=self.route,
            method=self.method,
            headers=self.headers,
            remote=self.remote,
            started=self.started,
        )
        for name in _OF_THE_REQUEST:
            setattr(derived, name, getattr(self, name))
        derived.body = body
        derived.plugin_set = plugin_set
        return derived


def internal_error(exchange: Exchange) -> InternalError:
    """What the client is told of a bug: where to find it in the log, nothing more."""
    return InternalError(f"Internal error; the log has more under the request id {exchange.id}.")
