"""Bringing a model into memory, or taking it out, as Ollama's clients ask for it: by a request that
asks the model nothing.

To load goes like any request, and no further than a request would: the endpoint is chosen that
would be asked, and the router's own loads are joined. To unload, or to say for how long a model is
kept, concerns everybody, so it needs the admin key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import orjson
from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from router.core.exchange import Exchange, Operation, Sink
from router.core.plugin_hooks import Proceed
from router.core.upstream import leaves_memory
from router.dialects.ollama.decode_request import model_of
from router.dialects.ollama.schema import timestamp
from router.endpoints.deployment import Deployment
from router.endpoints.registry import Group
from router.errors import AuthenticationFailed, Forbidden, InvalidRequest, NotSupported
from router.http.admin import AdminApi
from router.http.dispatcher import RequestDispatcher
from router.pipeline.attempt import answer_headers
from router.pipeline.hedging import Fleet
from router.settings.values import KeepAlive
from router.telemetry.log import get_logger

__all__ = ["OllamaMoves"]

_log = get_logger("router.admin")

_KEEP_ALIVE: Final[TypeAdapter[str | int]] = TypeAdapter(KeepAlive)
_SHOWN: Final = 200


class OllamaMoves:
    """Moves models for those who may."""

    def __init__(self, dispatcher: RequestDispatcher, fleet: Fleet, admin: AdminApi) -> None:
        self._dispatcher = dispatcher
        self._fleet = fleet
        self._admin = admin

    async def admit(self, exchange: Exchange) -> None:
        """Let a request in that the guards let in, or that has the admin key."""
        try:
            await exchange.context.plugin_set.chain.admit(exchange)
        except AuthenticationFailed:
            if not self._admin.opens(exchange):
                raise
            exchange.context.caller = "admin"

    def only_moves(self, exchange: Exchange) -> bool:
        """Whether it was let in by the admin key alone."""
        return exchange.context.caller == "admin" and exchange.context.key is None

    async def move(
        self, request: web.Request, exchange: Exchange, body: dict[str, Any], *, chat: bool
    ) -> web.StreamResponse:
        """Answer a request that asks the model nothing."""
        exchange.model = model_of(body)
        keep_alive = _keep_alive(body.get("keep_alive"))
        is_admin = self._admin.opens(exchange)
        unloads = leaves_memory(keep_alive)
        if unloads and not is_admin:
            raise Forbidden(
                "To take a model out of memory ('keep_alive': 0) needs the admin key: others may "
                "be using it.",
                param="keep_alive",
            )
        # No model is asked: nothing is used, or counted.
        exchange.request = exchange.request._replace(operation=Operation.OLLAMA)
        if keep_alive is not None and not is_admin:
            exchange.dropped = ("keep_alive",)
        move = self._unload if unloads else self._load

        async def answer(exchange: Exchange, sink: Sink) -> None:
            await move(exchange, keep_alive if is_admin else None)
            done = _done(exchange.model or "", "unload" if unloads else "load", chat=chat)
            sink.finish(200, orjson.dumps(done), answer_headers(exchange, {}))

        if self.only_moves(exchange):
            return await self._dispatcher.run(request, exchange, answer)
        return await self._dispatcher.run(request, exchange, _through_chain(answer))

    def loaded(self, body: Callable[[], bytes]) -> Proceed:
        """What has the model loaded and then answers with ``body()``."""

        async def answer(exchange: Exchange, sink: Sink) -> None:
            await self._load(exchange, None)
            sink.finish(200, body(), answer_headers(exchange, {}))

        return _through_chain(answer)

    async def _load(self, exchange: Exchange, keep_alive: KeepAlive | None) -> None:
        """Have the model in memory where a request would go now."""
        group = await self._group(exchange)
        selector = self._fleet.selector
        plan = selector.plan(group, exchange)
        deployment, _ = selector.choose(plan)
        deployment = (
            deployment or plan.deployments[0]
        )  # every slot is taken, which does not matter here
        exchange.result.endpoint = deployment.endpoint.name
        if keep_alive is None:
            await self._fleet.loads.ensure(deployment)
        else:
            await self._fleet.loads.warm(deployment, keep_alive)

    async def _unload(self, exchange: Exchange, keep_alive: KeepAlive | None) -> None:
        """Take the model out of memory wherever it is known to be in it."""
        group = await self._group(exchange)
        loads = self._fleet.loads
        results = await asyncio.gather(
            *(
                loads.warm(deployment, keep_alive)
                for deployment in group.deployments
                if _is_resident(deployment)
            ),
            return_exceptions=True,
        )
        _log.info(
            "model unloaded by a request", request_id=exchange.request.id, endpoints=len(results)
        )
        for error in results:
            if isinstance(error, BaseException) and not isinstance(error, NotSupported):
                raise error

    async def _group(self, exchange: Exchange) -> Group:
        return await self._fleet.registry.group(exchange.model or "", exchange.context.key)


def _is_resident(deployment: Deployment) -> bool:
    """Whether the endpoint tells what is in its memory, and the model is."""
    return (
        deployment.loaded and deployment.endpoint.catalogue.in_memory(deployment.model) is not None
    )


def _through_chain(core: Proceed) -> Proceed:
    """``core`` behind the gates and interceptors, like everything that a key asks for."""

    async def answer(exchange: Exchange, sink: Sink) -> None:
        await exchange.context.plugin_set.chain.run(exchange, sink, core)

    return answer


def _keep_alive(value: Any) -> KeepAlive | None:
    if value is None:
        return None
    if type(value) is float and value.is_integer():
        value = int(value)
    try:
        return _KEEP_ALIVE.validate_python(value)
    except ValidationError:
        raise InvalidRequest(
            "Invalid 'keep_alive': expected a number of seconds or a duration such as \"30m\"; "
            "0 unloads the model, -1 keeps it for ever.",
            code="invalid_value",
            param="keep_alive",
        ) from None


def _done(model: str, reason: str, *, chat: bool) -> dict[str, Any]:
    said = {"message": {"role": "assistant", "content": ""}} if chat else {"response": ""}
    return {
        "model": model,
        "created_at": timestamp(time.time_ns()),
        **said,
        "done": True,
        "done_reason": reason,
    }
