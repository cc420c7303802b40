"""Where requests come in: admission, the exchange's own task, and how it ends.

Every API route goes through ``RequestDispatcher.route``: an exchange is made from the head, the
guards are asked, and whatever goes wrong leaves in the one error envelope. What runs longer than a
look-up runs as a task that the dispatcher owns, so that a client's disconnect interrupts nothing
but the work for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

import orjson
from aiohttp import hdrs, web

from router.core.exchange import (
    ClientGone,
    Exchange,
    Operation,
    Outcome,
    Sink,
    internal_error,
)
from router.core.plugin_hooks import Proceed
from router.core.plugin_sets import PluginSets
from router.dialects.api_format import OPENAI, ApiFormat
from router.dialects.dropped import refuse_dropped
from router.errors import NotCached, Overloaded, RouterError
from router.http.body import read_counted
from router.http.browsers import BrowserRules
from router.http.connection import SENT, DirectRequest, HttpRequest
from router.http.direct_reply import DirectReply
from router.http.reply import CLIENT_CLOSED_REQUEST, HttpReply, HttpSink, Reply
from router.http.route import (
    UNKNOWN,
    Admit,
    DirectHandler,
    Handler,
    Route,
    json_response,
    new_exchange,
    shutting_down,
)
from router.pipeline.attempt import answer_headers
from router.settings.schema import ServerSettings
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks, Worker

__all__ = [
    "UNKNOWN",
    "Admit",
    "DirectHandler",
    "Handler",
    "RequestDispatcher",
    "json_response",
    "shutting_down",
]

T = TypeVar("T")
_log = get_logger("router.http")
_SWEEP_SECONDS: Final = 1.0
_ABORT_SECONDS: Final = 5.0


class RequestDispatcher:
    """Admits requests to one application and runs them to their end."""

    def __init__(
        self,
        plugin_sets: PluginSets,
        server: ServerSettings,
        browsers: BrowserRules | None = None,
        worker: Worker | None = None,
    ) -> None:
        self._plugin_sets = plugin_sets
        self.worker = worker
        self._browsers = browsers or BrowserRules(server, keyless=False)
        self.keepalive = server.keepalive_interval
        self._strict = server.unsupported == "strict"
        self.truncates_chat = server.chat_truncation == "auto"
        self.fallback_model: str | None = None
        self.max_body = int(server.max_body_mb * 1024 * 1024)
        self.max_values = server.max_body_values
        self._tasks = Tasks()
        self._watch = Tasks()
        self._running: dict[asyncio.Task[Any], Exchange] = {}
        self._apart: dict[asyncio.Task[Any], web.Request] = {}
        self.stopping = False
        self.draining = False
        self.direct: dict[str, Callable[[HttpRequest], Awaitable[web.StreamResponse]]] = {}
        """The handlers of ``route_direct``, by path."""
        self.closes = False
        self._drained_beside: list[Callable[[float], Awaitable[None]]] = []
        self._run_beside: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def route(
        self,
        operation: Operation,
        template: str,
        handler: Handler,
        admit: Admit | None = None,
        api_format: ApiFormat = OPENAI,
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """An aiohttp handler that admits the request before ``handler`` sees it.

        ``admit`` raises RouterError for those to refuse; without it the guards are asked.
        ``api_format`` is that of the API.
        """
        return partial(self._handle, Route(operation, template, handler, admit, api_format))

    def route_direct(
        self,
        operation: Operation,
        template: str,
        handler: DirectHandler,
        admit: Admit | None = None,
        api_format: ApiFormat = OPENAI,
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Like ``route``, for a path without variables that is served without aiohttp, too."""
        route = Route(operation, template, handler, admit, api_format)
        self.direct[template] = partial(self._handle, route)
        return partial(self._handle, route)

    def unlogged(
        self,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        api_format: ApiFormat = OPENAI,
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """An aiohttp handler for what is no exchange: only the rules for web pages apply."""

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                if self._browsers.keyless:
                    self._browsers.check(request)
            except RouterError as error:
                return json_response(api_format.error(error), error.status)
            return await handler(request)

        return handle

    async def _handle(self, route: Route, request: HttpRequest) -> web.StreamResponse:
        plugin_set = self._plugin_sets.current.enter()
        exchange = new_exchange(request, route, plugin_set, self.worker)
        self._open += 1
        self._idle.clear()
        response: web.StreamResponse | None = None
        try:
            if self._browsers.keyless:
                self._browsers.check(request)
            if request.method == hdrs.METH_OPTIONS:
                response = self._browsers.preflight(request)
            if response is None:
                if self.draining:
                    raise shutting_down("The router is shutting down; try again.")
                await (route.admit or plugin_set.chain.admit)(exchange)
                response = await route.handler(request, exchange)
            if response is SENT:
                return response
            if not response.prepared:
                response.headers["X-Request-Id"] = exchange.request.id
            if not exchange.running:
                exchange.result.status = response.status
                plugin_set.chain.ended(exchange, Outcome.OK)
            return response
        except RouterError as error:
            return self._refused(exchange, error)
        except (asyncio.CancelledError, ConnectionError) as gone:
            self._abandoned(exchange)
            if isinstance(gone, asyncio.CancelledError):
                raise
            return web.Response(status=CLIENT_CLOSED_REQUEST)
        except Exception:
            _log.exception("handler failed", request_id=exchange.request.id, route=route.template)
            return self._refused(exchange, internal_error(exchange))
        finally:
            if not exchange.running:  # else its task does, which may outlive this
                plugin_set.leave()
            self._open -= 1
            if not self._open:
                self._idle.set()

    async def read(
        self,
        request: HttpRequest,
        exchange: Exchange,
        decode: Callable[[bytes], T],
    ) -> T:
        """The body of a request, decoded. Raises InvalidRequest, PayloadTooLarge, Overloaded."""
        body = await read_counted(request, self.max_body, self.max_values)
        exchange.large = body.large
        if not body.large:
            return decode(body.raw)
        if self.worker is not None and self.worker.full:
            raise Overloaded(
                "Too many large requests wait to be worked on; try again.",
                headers={"Retry-After": "1"},
            )
        return await exchange.compute(decode, body.raw)

    def default_model(self, exchange: Exchange) -> str | None:
        """The model of a request that names none: that of its key, else ``default_model``."""
        key, model = exchange.context.key, self.fallback_model
        if key is None:
            return model
        return key.default_model or (model if model is None or key.may_use(model) else None)

    def run(
        self, request: HttpRequest, exchange: Exchange, answer: Proceed, reply: Reply | None = None
    ) -> Awaitable[web.StreamResponse]:
        """Have the exchange answered by ``answer``; by HTTP, unless there is another ``reply``.

        Raises InvalidRequest where nothing may be left out of a request, and something was.
        """
        if exchange.dropped and self._strict and exchange.native is None:
            refuse_dropped(exchange.dropped, {})
        exchange.context.plugin_set.chain.started(exchange)
        ident, form = exchange.request.id, exchange.context.api_format
        if isinstance(request, DirectRequest):
            direct = DirectReply(request.connection, ident, self.keepalive, form)
            return self._run(exchange, direct, answer)
        reply = reply or HttpReply(request, {"X-Request-Id": ident}, self.keepalive, form)
        return self._run_apart(request, exchange, reply, answer)

    async def _run_apart(
        self, request: web.Request, exchange: Exchange, reply: Reply, answer: Proceed
    ) -> web.StreamResponse:
        """Have the exchange answered in a task of its own, and see the reply through."""
        work = self._run(exchange, reply, answer)
        task = self._tasks.spawn(work, exchange.request.id)
        self._apart[task] = request
        try:
            return await reply.respond()
        except (asyncio.CancelledError, ConnectionError):
            task.cancel()
            raise

    async def see_through(self, exchange: Exchange, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` returns or raises; a client that leaves does not interrupt it."""
        return await self._tasks.see_through(work, exchange.request.id)

    async def _run(
        self, exchange: Exchange, reply: HttpSink, answer: Proceed
    ) -> web.StreamResponse:
        """Answer the exchange into ``reply``, in this task."""
        task, plugin_set = asyncio.current_task(), exchange.context.plugin_set
        assert task is not None
        self._running[task] = exchange
        exchange.running = True  # from here on it is the task that leaves the plugins
        outcome = Outcome.FAILED
        try:
            await answer(exchange, reply)
            outcome = exchange.result.outcome or Outcome.OK
            exchange.result.status = reply.status
        except RouterError as error:
            outcome = self._answer_error(exchange, reply, error)
        except ClientGone:
            outcome = _client_left(exchange, reply)
        except asyncio.CancelledError:
            outcome = _client_left(exchange, reply)
            if exchange.abort is None:
                raise
            outcome = self._answer_error(exchange, reply, exchange.abort)
        except Exception:
            _log.exception("exchange failed", request_id=exchange.request.id)
            outcome = self._answer_error(exchange, reply, internal_error(exchange))
        finally:
            reply.end()
            plugin_set.chain.ended(exchange, outcome)
            del self._running[task]
            self._apart.pop(task, None)
            plugin_set.leave()
        if isinstance(reply, DirectReply) and reply.paused:
            await reply.settled()
        return SENT

    def _answer_error(self, exchange: Exchange, sink: Sink, error: RouterError) -> Outcome:
        exchange.result.set_error(error)
        if sink.opened:
            # Only a plugin gets here: the pipeline ends its streams itself.
            with contextlib.suppress(ClientGone):
                sink.feed([exchange.context.api_format.failed(error)])
            return Outcome.FAILED
        form = exchange.context.api_format
        headers = answer_headers(exchange, {**form.error_headers(error), **error.headers})
        sink.finish(error.status, orjson.dumps(form.error(error)), headers)
        return _outcome(error)

    def _refused(self, exchange: Exchange, error: RouterError) -> web.Response:
        exchange.result.set_error(error)
        exchange.context.plugin_set.chain.ended(exchange, _outcome(error))
        form = exchange.context.api_format
        response = json_response(form.error(error), error.status)
        response.headers.update(
            {**exchange.result.headers, **form.error_headers(error), **error.headers}
        )
        response.headers["X-Request-Id"] = exchange.request.id
        return response

    def _abandoned(self, exchange: Exchange) -> None:
        """The client left before there was a task to end the exchange."""
        if not exchange.running:
            exchange.result.status = CLIENT_CLOSED_REQUEST
            exchange.context.plugin_set.chain.ended(exchange, Outcome.CANCELLED)

    @property
    def open(self) -> int:
        """How many requests are not over."""
        # What runs in a task of its own may outlive its handler, or the handler its task.
        return max(self._open, len(self._running))

    def run_beside(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have ``work()`` run from ``start`` to ``stop``, when it is cancelled."""
        self._run_beside.append(work)

    def start(self) -> None:
        """Begin to look for clients that left, and what else runs beside."""
        self._watch.spawn(self._sweep(), "sweep for clients that left")
        for work in self._run_beside:
            self._watch.spawn(work(), work.__name__)

    async def _sweep(self) -> None:
        """Cancel exchanges whose client is gone, for servers that do not cancel handlers."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for task, request in list(self._apart.items()):
                if request.transport is None or request.transport.is_closing():
                    task.cancel()

    def drain_beside(self, drain: Callable[[float], Awaitable[None]]) -> None:
        """Have ``drain(timeout)`` called whenever the dispatcher drains, at the same time."""
        self._drained_beside.append(drain)

    def stop_soon(self) -> None:
        """Requests are still served, but ``/ready`` and ``Connection: close`` send clients away."""
        self.stopping = self.closes = True

    def hand_over(self) -> None:
        """Another process takes this one's place: requests are still served, and ``/ready`` stays,
        but ``Connection: close`` sends clients there.
        """
        self.closes = True

    async def part(self, request: web.Request, response: web.StreamResponse) -> None:
        """Close the connection after an answer that is about to leave, where the router stops
        (``on_response_prepare``).
        """
        if self.closes:
            response.force_close()
            response.headers["Connection"] = "close"

    async def drain(self, timeout: float) -> None:
        """Refuse new requests, give running ones ``timeout`` seconds, then end them.

        A stream that is ended this way closes with ``response.failed``.
        """
        self.stopping = self.draining = self.closes = True
        beside = [drain(timeout) for drain in self._drained_beside]
        await asyncio.gather(self._drain(timeout), *beside)

    async def _drain(self, timeout: float) -> None:
        if not await self._quiet(timeout):
            for task, exchange in list(self._running.items()):
                exchange.abort = shutting_down("The router is shutting down.")
                task.cancel()
            if self._running:
                await asyncio.wait(list(self._running), timeout=_ABORT_SECONDS)
            await self._tasks.wait(_ABORT_SECONDS)

    async def _quiet(self, timeout: float) -> bool:
        """Wait until every request that was let in is over; False when time was."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        try:
            async with asyncio.timeout_at(until):
                await self._idle.wait()
        except TimeoutError:
            return False
        return await self._tasks.wait(max(0.0, until - loop.time()))

    async def stop(self) -> None:
        """End everything that still runs."""
        await self._watch.close()
        await self._tasks.close()


def _client_left(exchange: Exchange, sink: Sink) -> Outcome:
    exchange.result.status = 200 if sink.opened else CLIENT_CLOSED_REQUEST
    return Outcome.CANCELLED


def _outcome(error: RouterError) -> Outcome:
    refused = error.status < 500 or isinstance(error, NotCached)
    return Outcome.REFUSED if refused else Outcome.FAILED
