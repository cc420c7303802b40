"""The Responses API over a WebSocket: ``GET /v1/responses`` with an upgrade.

Each ``response.create`` that a client sends is a request like a POST: the dispatcher admits it, it
has a request id, and everything that holds for a POST holds for it. Only its body came as a message
and its events go out as messages. What is the connection's own: requests of one stream are answered
one after the other, those of several streams (``stream_id``) at the same time, and what is not
stored is kept for as long as the connection lasts (``sessions.chains``).

Source: OpenAI's guide to the WebSocket mode of the Responses API; the names and texts of its errors
are its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from aiohttp import WSCloseCode, WSMsgType, hdrs, web

from router.core.exchange import ClientGone, Exchange, Operation
from router.dialects.responses.schema import parse_object
from router.endpoints.registry import Registry
from router.errors import InvalidRequest, Overloaded, RouterError
from router.http.body import counted
from router.http.dispatcher import Handler, RequestDispatcher, json_response, shutting_down
from router.http.reply import CLIENT_CLOSED_REQUEST
from router.http.responses import ResponsesApi
from router.http.socket_reply import MessageQueue, error_message
from router.http.socket_turn import (
    CreateMessage,
    SocketDispatch,
    crowded,
    raising,
    steering_failed,
    stream_of,
)
from router.sessions.chains import ChainMemory, Chains, SocketStream
from router.sessions.turns import Turns
from router.settings.schema import ServerSettings
from router.state.prompts import PromptStore
from router.state.responses import ResponseStore
from router.telemetry.tasks import Tasks

__all__ = ["UpgradeResource", "WebSocketApi"]

_METHOD: Final = "WS"
"""What logs show as the method of a request that came as a message."""

_MAX_RUNNING: Final = 16
_MAX_NAMED: Final = 32
_MAX_WAITING: Final = 64
"""Responses under way, names of streams, and requests that wait, of one connection."""

_DRAIN_SECONDS: Final = 15.0
"""What closing takes at most, once nothing runs."""


class UpgradeRequired(RouterError):
    """426: WebSockets are turned off. Clients take it as the word to speak HTTP."""

    status = 426
    type = "invalid_request_error"
    default_code = "websocket_not_supported"


class WebSocketApi:
    """Handler of the upgrade at ``/v1/responses``, and owner of the connections."""

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        turns: Turns,
        prompts: PromptStore,
        responses: ResponseStore,
        registry: Registry,
        settings: ServerSettings,
    ) -> None:
        self.dispatcher = dispatcher
        self.turns = turns
        self.prompts = prompts
        self.responses = responses
        self.registry = registry
        self.settings = settings
        self.memory = ChainMemory()
        self.tasks = Tasks()
        self._open: set[_SocketConnection] = set()
        self._none = asyncio.Event()
        self._none.set()
        dispatcher.drain_beside(self._drain)

    @property
    def open(self) -> int:
        """How many connections there are."""
        return len(self._open)

    def add_routes(self, app: web.Application, template: str) -> None:
        """Answer upgrades at this path, and nothing else: other requests do not see the route."""
        resource = UpgradeResource(template)
        app.router.register_resource(resource)
        resource.add_route(hdrs.METH_GET, partial(self.connect, template))

    async def connect(self, template: str, request: web.Request) -> web.StreamResponse:
        """GET /responses: a connection, from its upgrade to its end."""
        socket: web.WebSocketResponse[Any] = web.WebSocketResponse(
            max_msg_size=self.dispatcher.max_body, decode_text=False, timeout=5.0
        )
        upgrade = self.dispatcher.route(
            Operation.WEBSOCKET, template, partial(self._upgrade, socket)
        )
        response = await upgrade(request)
        if response is not socket:
            return response
        connection = _SocketConnection(self, template, request, socket)
        self._open.add(connection)
        self._none.clear()
        try:
            await connection.serve()
        finally:
            self._open.discard(connection)
            if not self._open:
                self._none.set()
        return socket

    async def _upgrade(
        self, socket: web.WebSocketResponse[Any], request: web.Request, exchange: Exchange
    ) -> web.StreamResponse:
        if not self.settings.websocket:
            raise UpgradeRequired(
                "WebSockets are turned off here (server.websocket); send requests as a POST.",
                headers={hdrs.UPGRADE: "HTTP/1.1"},
            )
        if self.dispatcher.stopping:
            raise shutting_down("The router is shutting down; try again.")
        if not socket.can_prepare(request):
            raise InvalidRequest(
                "Invalid WebSocket handshake: version 13 with a 'Sec-WebSocket-Key' is needed.",
                code="invalid_handshake",
                headers={hdrs.SEC_WEBSOCKET_VERSION: "13"},
            )
        socket.headers["X-Request-Id"] = exchange.request.id
        await socket.prepare(request)
        return socket

    async def _drain(self, timeout: float) -> None:
        """Close every connection once what runs on it is over."""
        for connection in list(self._open):
            connection.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout + _DRAIN_SECONDS):
                await self._none.wait()
        await self.tasks.close()


class UpgradeResource(web.PlainResource):
    """A path that is there for WebSocket upgrades only."""

    async def resolve(self, request: web.Request) -> Any:
        """See ``AbstractResource.resolve``."""
        if request.headers.get(hdrs.UPGRADE, "").strip().lower() != "websocket":
            return None, set()
        return await super().resolve(request)


@dataclass(slots=True)
class _StreamRequests:
    """The requests of one stream that wait, and whether one of it is worked on."""

    waiting: deque[CreateMessage] = field(default_factory=deque)
    running: bool = False


class _SocketConnection:
    """One client, from its upgrade until either side closes."""

    def __init__(
        self,
        api: WebSocketApi,
        template: str,
        request: web.Request,
        socket: web.WebSocketResponse[Any],
    ) -> None:
        self._api = api
        self._dispatcher = api.dispatcher
        self._template = template
        # Each message has a request id of its own.
        headers = request.headers.copy()
        headers.popall("X-Request-Id", None)
        self._request = request.clone(method=_METHOD, headers=headers)
        self._socket = socket
        self._queue = MessageQueue(request, socket)
        self._chains = Chains(api.memory, api.responses)
        self._lines: dict[str | None, _StreamRequests] = {None: _StreamRequests()}
        self._slots = asyncio.Semaphore(_MAX_RUNNING)
        self._waiting = 0
        self._waiting_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = 0
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + api.settings.websocket_max_age
        self._heard = self._loop.time()
        self._expired = False
        self._leaving = False

    async def serve(self) -> None:
        """See it through. What runs when the client leaves is cancelled."""
        writer = self._spawn(self._queue.write(), "write to a WebSocket")
        try:
            with contextlib.suppress(ClientGone):
                await self._read()
            if self._queue.closing:
                await asyncio.wait({writer}, timeout=_DRAIN_SECONDS)
        finally:
            # At once, since whoever runs this may be cancelled while it waits for them.
            for task in self._tasks:
                task.cancel()
            self._chains.close()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._api.tasks.spawn(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def leave(self) -> None:
        """Close the connection as soon as nothing runs on it."""
        self._leaving = True
        self._settle()

    async def _read(self) -> None:
        while True:
            await self._queue.resumed()  # who does not read is not listened to
            try:
                message = await self._socket.receive(timeout=self._patience())
            except TimeoutError:
                await self._look()
                continue
            self._heard = self._loop.time()
            if self._queue.closing and message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                continue  # it crossed the close on its way, and its client will see that
            if message.type is WSMsgType.TEXT:
                await self._take(message.data)
            elif message.type is WSMsgType.BINARY:
                error = "Invalid message: expected text, but got a binary one."
                await self._refuse(None, InvalidRequest(error, code="invalid_type"))
            else:
                return

    def _patience(self) -> float:
        """Seconds until there is something to look at."""
        settings, now = self._api.settings, self._loop.time()
        until = now + self._dispatcher.keepalive
        if not self._expired:
            until = min(until, self._until)
        if not self._busy:
            until = min(until, self._heard + settings.websocket_idle)
        return max(0.001, until - now)

    async def _look(self) -> None:
        """See to what time brings: the connection's end, or a sign of life."""
        now = self._loop.time()
        if now >= self._until and not self._expired:
            self._expired = True
            self._settle()
        elif not self._busy and now >= self._heard + self._api.settings.websocket_idle:
            self._queue.close(WSCloseCode.OK, "nothing happened for too long")
        else:
            with contextlib.suppress(ConnectionError):  # who reads next is told
                await self._socket.ping()

    def _settle(self) -> None:
        """Close the connection where that waits for nothing any more."""
        if self._busy or self._queue.closing:
            return
        if self._expired:
            error = self._too_old()
            with contextlib.suppress(ClientGone):
                answer = json_response(error.envelope(), error.status)
                self._queue.send(error_message(None, answer))
            self._queue.close(WSCloseCode.OK, "connection limit reached")
        elif self._leaving or self._dispatcher.stopping:
            self._queue.close(WSCloseCode.GOING_AWAY, "the router is shutting down")

    def _too_old(self) -> InvalidRequest:
        minutes = f"{self._api.settings.websocket_max_age / 60:g} minutes"
        return InvalidRequest(
            f"Responses websocket connection limit reached ({minutes}). Create a new websocket "
            "connection to continue.",
            code="websocket_connection_limit_reached",
        )

    async def _take(self, raw: bytes) -> None:
        """A message: one more request of its stream, or refused at once."""
        stream = None
        try:
            message, large = await self._parse(raw)
            if message.get("type") == "response.processed":
                return  # a client's own bookkeeping
            if message.get("type") == "response.steer":
                self._queue.send(steering_failed(message))
                return
            stream = stream_of(message)
            create = CreateMessage.of(message, len(raw), large=large)
            line = self._line(stream)
            self._check_room(create)
        except RouterError as error:
            await self._refuse(stream, error)
            return
        line.waiting.append(create)
        self._waiting += 1
        self._waiting_bytes += create.size
        if not line.running:
            line.running = True
            self._busy += 1
            self._spawn(self._work(stream, line), "answer on a WebSocket")

    async def _parse(self, raw: bytes) -> tuple[dict[str, Any], bool]:
        worker = self._dispatcher.worker
        body = await counted(raw, self._dispatcher.max_values)
        if not body.large or worker is None:
            return parse_object(raw), False
        if worker.full:
            raise crowded()
        return await worker.run(partial(parse_object, raw)), True

    def _line(self, stream: str | None) -> _StreamRequests:
        line = self._lines.get(stream)
        if line is None:
            if len(self._lines) > _MAX_NAMED:
                raise InvalidRequest(
                    "This WebSocket connection has reached its maximum number of distinct stream "
                    f"IDs ({_MAX_NAMED}). Reuse an existing stream_id or open a new WebSocket "
                    "connection.",
                    code="websocket_stream_limit_reached",
                    param="stream_id",
                )
            line = self._lines[stream] = _StreamRequests()
        return line

    def _check_room(self, create: CreateMessage) -> None:
        """What waits is at most as much as one body may be, or one request."""
        size = self._waiting_bytes + create.size
        if self._waiting >= _MAX_WAITING or (self._waiting and size > self._dispatcher.max_body):
            raise Overloaded(
                "Too many requests wait on this connection for others to end; try again.",
                code="websocket_queue_full",
                headers={"Retry-After": "1"},
            )

    async def _work(self, name: str | None, line: _StreamRequests) -> None:
        """Answer the requests of one stream, one after the other."""
        stream = SocketStream(self._chains, name)
        try:
            while line.waiting:
                async with self._slots:
                    create = line.waiting.popleft()
                    self._waiting -= 1
                    self._waiting_bytes -= create.size
                    await self._create(stream, create)
        except ClientGone:
            pass  # who reads is told, too
        finally:
            line.running = False
            self._busy -= 1
            self._heard = self._loop.time()
        self._settle()

    async def _create(self, stream: SocketStream, create: CreateMessage) -> None:
        api = self._api
        if self._expired:
            await self._refuse(stream.name, self._too_old())
            return
        turn = SocketDispatch(
            self._dispatcher, api.turns, api.registry, self._queue, stream, create
        )
        handler = ResponsesApi(turn, api.turns, api.prompts).create
        status = await self._answer(stream.name, handler)
        if create.previous is not None and (turn.failed or status >= 400):
            self._chains.failed(create.previous, stream.name)

    async def _refuse(self, stream: str | None, error: RouterError) -> None:
        await self._answer(stream, raising(error))

    async def _answer(self, stream: str | None, handler: Handler) -> int:
        """Have a request answered; an answer that is no stream is an error, and sent as one.
        Returns its status.
        """
        guarded = self._dispatcher.route(Operation.RESPONSES, self._template, handler)
        response = await guarded(self._request)
        if isinstance(response, web.Response) and response.status >= 400:
            if response.status == CLIENT_CLOSED_REQUEST:
                raise ClientGone
            self._queue.send(error_message(stream, response))
        return response.status
