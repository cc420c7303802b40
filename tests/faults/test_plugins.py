"""Faults of plugins at the moments in which connections break."""

from __future__ import annotations

from router.core.exchange import ClientGone, Exchange, Sink
from router.core.plugin_hooks import Interceptor, Proceed
from router.settings.schema import Dialect
from tests.support.client import Client
from tests.support.router import endpoint, routing
from tests.support.speech import Speech
from tests.support.upstream import Upstream, streamed
from tests.support.waiting import until


class Clumsy(Interceptor):
    """Takes a client that left for its own failure."""

    name = "clumsy"

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        """See ``Interceptor.intercept``."""
        try:
            await proceed(exchange, sink)
        except ClientGone:
            raise RuntimeError("whoops") from None


async def test_a_plugin_fails_when_the_client_has_left(dialect: Dialect, speech: Speech) -> None:
    words = speech.words[1:3] * 2000
    script = streamed(speech.opening, speech.words[0], *words, kind=speech.kind, pause=0.001)
    async with (
        Upstream(script) as upstream,
        routing(
            endpoint(upstream, dialect),
            plugins=["tests.faults.test_plugins:Clumsy"],
            foreign=True,
            handler_cancellation=False,
        ) as router,
    ):
        client = await Client.open(router.url)
        client.ask(stream=True)
        await client.until(b"Hello")
        client.leave("reset")
        await until(lambda: not router.running)
        broke = [line for line in router.log if line["event"] == "interceptor broke"]
        assert len(broke) == 1
        router.log.remove(broke[0])
