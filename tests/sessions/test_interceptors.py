"""Interceptors see runs as they see other exchanges."""

from __future__ import annotations

import pytest

from router.core.exchange import Exchange, Operation, Sink
from router.core.plugin_hooks import Interceptor, Proceed
from router.settings.schema import Dialect
from tests.support.calling import answering, call, finished
from tests.support.router import endpoint, routing
from tests.support.sse import check_responses_stream


class Passing(Interceptor):
    """Changes what a run asks for, and passes it on."""

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        """See ``Interceptor.intercept``."""
        if exchange.request.operation is Operation.RUN:
            exchange.body = {**exchange.body, "temperature": 0.25}
        await proceed(exchange, sink)


class Broken(Interceptor):
    """Fails before anything has been said."""

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        """See ``Interceptor.intercept``."""
        raise RuntimeError("whoops")


@pytest.mark.parametrize("plugin", ["Passing", "Broken"])
async def test_a_run_passes_through(dialect: Dialect, plugin: str) -> None:
    name = f"tests.sessions.test_interceptors:{plugin}"
    async with answering(dialect) as upstream:
        async with routing(endpoint(upstream, dialect), plugins=[name]) as router:
            ident = (await router.ask(background=True)).json["id"]
            done = await finished(router, ident)
            assert done["status"] == "completed", done["error"]
            query = {"stream": "true"}
            replay = await call(router, "GET", f"/responses/{ident}", params=query)
            assert check_responses_stream(replay.events) == done
            broke = [line for line in router.log if line["event"] == "interceptor broke"]
            assert len(broke) == (plugin == "Broken")
            for line in broke:
                router.log.remove(line)
        sent = upstream.requests[-1].json
        heat = sent.get("temperature") or sent.get("options", {}).get("temperature")
        assert heat == (0.25 if plugin == "Passing" else None)
