"""Changing what Ollama endpoints have: pull, push, create, copy, delete, behind the admin key.

A request is for every endpoint of the dialect ``ollama``, or for the one that the header
``X-Pointsman-Endpoint`` names. Progress is merged, each line with the name of its ``endpoint``.
A failure at one does not stop the others; it is told in the end, and no success is claimed then.
To copy or delete what some endpoint does not have is no failure, as long as another has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import orjson
from aiohttp import web

from router.core.exchange import ClientGone, Exchange, Operation, Sink
from router.core.plugin_hooks import Proceed
from router.dialects.ollama.decode_request import model_of, wants_stream
from router.dialects.ollama.schema import line
from router.dialects.parameters import missing, string
from router.dialects.responses.schema import parse_object
from router.endpoints.described import Described, speaks_ollama
from router.endpoints.endpoint import Endpoint
from router.endpoints.managing import change, follow
from router.endpoints.registry import Registry
from router.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    UpstreamError,
    UpstreamFailure,
    UpstreamModelMissing,
    UpstreamRejected,
)
from router.http.admin import AdminApi
from router.http.dispatcher import Admit, Handler, RequestDispatcher
from router.telemetry.log import get_logger

__all__ = ["OllamaManage"]

_log = get_logger("router.admin")

_AIM: Final = "X-Pointsman-Endpoint"
_SHOWN: Final = 200
_NO_STORE: Final = {"Cache-Control": "no-store"}
_DONE: Final = "success"
_NOT_THERE: Final = "not there"

Failures = dict[str, UpstreamError]


class OllamaManage:
    """Handlers under ``/api`` with the admin key."""

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        registry: Registry,
        described: Described,
        admin: AdminApi,
    ) -> None:
        self._dispatcher = dispatcher
        self._registry = registry
        self._described = described
        self._admin = admin

    def routes(self) -> list[tuple[str, str, Operation, Handler, Admit | None]]:
        """See ``router.http.ollama.Route``."""
        routes = [
            ("POST", "/pull", self.follow),
            ("POST", "/push", self.follow),
            ("POST", "/create", self.follow),
            ("POST", "/copy", self.change),
            ("DELETE", "/delete", self.change),
            ("HEAD", "/blobs/{digest}", self.blobs),
            ("POST", "/blobs/{digest}", self.blobs),
        ]
        admit = self._admin.admit
        return [(method, path, Operation.ADMIN, handler, admit) for method, path, handler in routes]

    async def follow(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /api/pull, /api/push, /api/create: told as they go, unless ``stream`` is false."""
        body = await self._dispatcher.read(request, exchange, parse_object)
        model_of(body)
        exchange.stream = wants_stream(body)
        endpoints = self._aimed_at(exchange)
        answer = self._followed(exchange.request.route, body, endpoints)
        return await self._dispatcher.run(request, exchange, answer)

    async def change(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /api/copy, DELETE /api/delete."""
        body = await self._dispatcher.read(request, exchange, parse_object)
        if request.method == "DELETE":
            model_of(body)
        else:
            for name in ("source", "destination"):
                if body.get(name) in (None, ""):
                    raise missing(name)
                string(body[name], name)
        endpoints = self._aimed_at(exchange)
        answer = self._changed(request.method, exchange.request.route, body, endpoints)
        return await self._dispatcher.run(request, exchange, answer)

    async def blobs(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """HEAD and POST /api/blobs/{digest}: files of a model, which are not passed on."""
        raise NotSupported(
            "Files are not passed on: create a model from files at the endpoint itself, or from "
            "another model ('from')."
        )

    def _aimed_at(self, exchange: Exchange) -> list[Endpoint]:
        name = exchange.request.headers.get(_AIM)
        every = [one for one in self._registry.endpoints if speaks_ollama(one)]
        if name is None:
            if not every:
                raise NotSupported("There is no endpoint of the dialect 'ollama' to manage.")
            return every
        found = self._registry.named(name)
        if found is None:
            known = ", ".join(endpoint.name for endpoint in every)
            raise NotFound(
                f"There is no endpoint '{name[:_SHOWN]}' ({_AIM}). There are: {known or 'none'}."
            )
        if found not in every:
            raise InvalidRequest(
                f"The endpoint '{found.name}' ({_AIM}) does not speak Ollama's API."
            )
        return [found]

    def _followed(self, route: str, body: dict[str, Any], endpoints: list[Endpoint]) -> Proceed:
        async def answer(exchange: Exchange, sink: Sink) -> None:
            failures: Failures = {}

            async def one(endpoint: Endpoint) -> None:
                async def progress(told: dict[str, Any]) -> None:
                    if exchange.stream:
                        await _tell(sink, {**told, "endpoint": endpoint.name})

                try:
                    await follow(endpoint, route, body, progress)
                    if len(endpoints) > 1:
                        await progress({"status": f"{_DONE} at {endpoint.name}"})
                except UpstreamError as error:
                    failures[endpoint.name] = error
                    if len(endpoints) > 1 and sink.opened:
                        await progress({"status": f"failed at {endpoint.name}: {error.message}"})

            await self._at_all(exchange, endpoints, one)
            self._note(exchange, endpoints, failures)
            _conclude(exchange, sink, endpoints, failures, {})

        return answer

    def _changed(
        self, method: str, route: str, body: dict[str, Any], endpoints: list[Endpoint]
    ) -> Proceed:
        async def answer(exchange: Exchange, sink: Sink) -> None:
            failures: Failures = {}

            async def one(endpoint: Endpoint) -> None:
                try:
                    await change(endpoint, method, route, body)
                except UpstreamError as error:
                    failures[endpoint.name] = error

            await self._at_all(exchange, endpoints, one)
            self._note(exchange, endpoints, failures)
            absent = {n: e for n, e in failures.items() if isinstance(e, UpstreamModelMissing)}
            if len(absent) == len(endpoints):
                absent = {}  # nobody has it, which is a failure
            left = {name: error for name, error in failures.items() if name not in absent}
            _conclude(exchange, sink, endpoints, left, dict.fromkeys(absent, _NOT_THERE))

        return answer

    async def _at_all(
        self,
        exchange: Exchange,
        endpoints: list[Endpoint],
        work: Callable[[Endpoint], Coroutine[Any, Any, None]],
    ) -> None:
        """Do it at every endpoint at once; a client that leaves ends it everywhere."""
        gone = False
        try:
            async with asyncio.TaskGroup() as group:
                for endpoint in endpoints:
                    group.create_task(
                        work(endpoint), name=f"{exchange.request.id} at {endpoint.name}"
                    )
        except* ClientGone:
            gone = True
        finally:
            for endpoint in endpoints:
                self._described.forget(endpoint)
                endpoint.probe_now.set()  # what it serves may be something else now
        if gone:
            raise ClientGone

    @staticmethod
    def _note(exchange: Exchange, endpoints: list[Endpoint], failures: Failures) -> None:
        _log.info(
            "models managed",
            request_id=exchange.request.id,
            remote=exchange.request.remote,
            method=exchange.request.method,
            route=exchange.request.route,
            endpoints=[endpoint.name for endpoint in endpoints],
            failed={name: error.logged for name, error in failures.items()},
        )


async def _tell(sink: Sink, told: Mapping[str, Any]) -> None:
    """Pass a line on, at the pace of the client."""
    if not sink.opened:
        sink.open(_NO_STORE)
    sink.feed([line(told)])
    if sink.paused:
        await sink.resumed()


def _conclude(
    exchange: Exchange,
    sink: Sink,
    endpoints: list[Endpoint],
    failures: Failures,
    others: Mapping[str, str],
) -> None:
    """Say how it ended. ``others`` are the endpoints that did something else than what was asked.

    Raises UpstreamError where it failed, and nothing has been said yet.
    """
    if not failures:
        said: dict[str, Any] = {"status": _DONE}
        if exchange.stream:
            if not sink.opened:
                sink.open(_NO_STORE)
            sink.feed([line(said)])
            sink.end()
            return
        said["endpoints"] = {e.name: others.get(e.name, _DONE) for e in endpoints}
        sink.finish(200, orjson.dumps(said), _NO_STORE)
        return
    error = _combined(failures, len(endpoints))
    error.headers.update(_NO_STORE)
    if not sink.opened:
        raise error
    exchange.result.fail(error.code)
    sink.feed([exchange.context.api_format.failed(error)])
    sink.end()


def _combined(failures: Failures, asked: int) -> UpstreamError:
    """One error for all: of their own kind where they are of one, and nobody did what was asked."""
    errors = list(failures.values())
    if asked == 1:
        return errors[0]
    words = "; ".join(f"{name}: {error.message}" for name, error in failures.items())
    message = f"{len(errors)} of {asked} endpoints failed ({words})"
    for kind in (UpstreamModelMissing, UpstreamRejected):
        if len(errors) == asked and all(type(error) is kind for error in errors):
            return kind.quoting(message)
    return UpstreamFailure.quoting(message)
