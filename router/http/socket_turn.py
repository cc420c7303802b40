"""One ``response.create``: the message, and the request that is made of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from router.core.exchange import Exchange, Sink
from router.core.plugin_hooks import Proceed
from router.core.response_lifecycle import client_headers, new_builder, persist
from router.dialects.responses.schema import validate_create
from router.endpoints.registry import Registry
from router.errors import InvalidRequest, Overloaded, RouterError
from router.http.connection import HttpRequest
from router.http.dispatcher import RequestDispatcher
from router.http.socket_reply import MessageQueue, SocketReply
from router.sessions.chains import SocketStream
from router.sessions.turns import Turns, is_durable

__all__ = ["CreateMessage", "SocketDispatch", "crowded", "raising", "steering_failed", "stream_of"]

_STREAM_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_SHOWN: Final = 100
_UNUSED: Final = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


def stream_of(message: dict[str, Any]) -> str | None:
    """The name of the stream that a message belongs to, None for the default one; raises
    InvalidRequest.
    """
    stream = message.get("stream_id")
    if stream is None:
        return None
    if not isinstance(stream, str) or not _STREAM_ID.fullmatch(stream):
        raise InvalidRequest(
            "The 'stream_id' field must be a non-empty string with at most 256 characters and may "
            "only contain letters, numbers, underscores, hyphens, and periods.",
            code="invalid_stream_id",
            param="stream_id",
        )
    return stream


@dataclass(frozen=True, slots=True)
class CreateMessage:
    """A request as it came: its ``body``, of which ``size`` bytes arrived, and whether work on it
    takes long. ``generates``: a model is to answer it.
    """

    body: dict[str, Any]
    size: int
    large: bool
    generates: bool

    @classmethod
    def of(cls, message: dict[str, Any], size: int, *, large: bool) -> CreateMessage:
        """Raises InvalidRequest for another message, and for what only a POST may ask for."""
        kind = message.get("type")
        if kind != "response.create":
            shown = f"'{kind[:_SHOWN]}'" if isinstance(kind, str) else "none that is a string"
            raise InvalidRequest(
                f"Invalid 'type': expected 'response.create', but got {shown}.",
                code="invalid_value",
                param="type",
            )
        generate = message.get("generate")
        if generate is not None and not isinstance(generate, bool):
            raise InvalidRequest(
                "Invalid type for 'generate': expected a boolean.",
                code="invalid_type",
                param="generate",
            )
        envelope = ("type", "stream_id", "generate")
        body = {name: value for name, value in message.items() if name not in envelope}
        _refuse_unsupported(body)
        body["stream"] = True
        return cls(body, size, large, generate is not False)

    def check(self) -> None:
        """Raise InvalidRequest like ``validate_create``; what only warms up needs no input."""
        body = self.body
        if self.generates or body.get("input") not in (None, []):
            validate_create(body, any_model=True)
        else:
            validate_create({**body, "input": "-"}, any_model=True)
            body["input"] = []

    @property
    def previous(self) -> str | None:
        """The id of the response that it goes on from."""
        previous = self.body.get("previous_response_id")
        return previous if isinstance(previous, str) else None


def _refuse_unsupported(body: dict[str, Any]) -> None:
    name = None
    if body.get("background"):
        name = "background"
    elif body.get("stream") is False:
        name = "stream"
    elif isinstance(body.get("stream_options"), dict) and is_durable({**body, "stream": True}):
        name = "stream_options.durable"
    if name is not None:
        raise InvalidRequest(
            f"Unsupported parameter: '{name}' is not available over a WebSocket, where every "
            "response is streamed to its end; send the request as a POST.",
            code="unsupported_parameter",
            param=name,
        )


class SocketDispatch:
    """Implements ``router.http.responses.Dispatch`` for one message.

    ``failed`` is whether its response ended as failed.
    """

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        turns: Turns,
        registry: Registry,
        queue: MessageQueue,
        socket: SocketStream,
        message: CreateMessage,
    ) -> None:
        self._dispatcher = dispatcher
        self._turns = turns
        self._registry = registry
        self._queue = queue
        self._socket = socket
        self._message = message
        self.failed = False

    async def read(
        self, request: HttpRequest, exchange: Exchange, decode: Callable[[bytes], dict[str, Any]]
    ) -> dict[str, Any]:
        """The body of the message, which was decoded to see whose it is; raises InvalidRequest,
        Overloaded.
        """
        exchange.large = self._message.large
        worker = self._dispatcher.worker
        if exchange.large and worker is not None and worker.full:
            raise crowded()
        await exchange.compute(self._message.check)
        body = self._message.body
        if not body.get("model") and (model := self._socket.chains.model(self._message.previous)):
            body["model"] = model
        return body

    def default_model(self, exchange: Exchange) -> str | None:
        """See ``RequestDispatcher.default_model``."""
        return self._dispatcher.default_model(exchange)

    async def run(
        self, request: HttpRequest, exchange: Exchange, answer: Proceed
    ) -> web.StreamResponse:
        """Have it answered on the socket, by ``answer`` in the stream that it belongs to."""
        socket = self._socket
        reply = SocketReply(self._queue, socket.name, {"X-Request-Id": exchange.request.id})
        warms_up = None if self._message.generates else partial(_warm_up, self._registry)
        answer = partial(self._turns.answer, socket=socket, proceed=warms_up)
        try:
            return await self._dispatcher.run(request, exchange, answer, reply)
        finally:
            self.failed = reply.failed


def steering_failed(message: dict[str, Any]) -> bytes:
    """The event that gives back the input of a ``response.steer``: no endpoint is asked over a
    WebSocket, and so none can be steered. Raises InvalidRequest for what is none.
    """
    for name, kinds in (("previous_response_id", str), ("input", (str, list))):
        if not isinstance(message.get(name), kinds):
            expected = "a string" if kinds is str else "a string or an array"
            raise InvalidRequest(
                f"Invalid type for '{name}': expected {expected}.", code="invalid_type", param=name
            )
    steer = {name: message[name] for name in ("previous_response_id", "input")}
    error = {
        "type": "invalid_request_error",
        "code": "steering_not_supported",
        "message": "No response can be steered here. Wait for its end, and continue it with "
        "'response.create' and this input.",
    }
    event = {"type": "response.steer.failed", "sequence_number": 0, "steer": steer, "error": error}
    return orjson.dumps(event)


def crowded() -> Overloaded:
    """The error for a large request that would have to wait too long."""
    return Overloaded(
        "Too many large requests wait to be worked on; try again.", headers={"Retry-After": "1"}
    )


def raising(error: RouterError) -> Callable[[web.Request, Exchange], Any]:
    """A handler for a message that is refused."""

    async def refuse(request: web.Request, exchange: Exchange) -> web.StreamResponse:
        raise error

    return refuse


async def _warm_up(registry: Registry, exchange: Exchange, sink: Sink) -> None:
    """Answer with a response that says nothing and can be continued: what comes next sends only
    what is new. No endpoint is asked, so that nothing is used.
    """
    await exchange.context.plugin_set.chain.accept(exchange)
    await registry.group(exchange.model or "", exchange.context.key)
    builder = new_builder(exchange.body)
    opening = builder.open()
    final = builder.snapshot("completed", usage=dict(_UNUSED))
    last = await persist(exchange, builder, final, {}, builder.end(final))
    sink.open(client_headers(exchange, {}))
    sink.feed([*opening, last])
