"""Where a missing price is counted: at endpoints that sell, and everywhere if asked for."""

from __future__ import annotations

from tests.support.calling import call
from tests.support.fetch import fetch
from tests.support.reloading import patient, reload
from tests.support.router import routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, whole

CHAT = SPEECH["chat"]


async def test_missing_prices_at_own_hosts_are_counted_when_asked_for() -> None:
    async with Upstream(default=whole(CHAT.whole)) as upstream:
        one = patient(upstream)
        async with routing(one) as router:
            counts = []
            for wanted in ("public", "all"):
                await reload(router, one, accounts={"report_unpriced": wanted})
                reply = await call(router, "POST", "/responses", {"model": "m", "input": "hi"})
                assert reply.status == 200, reply.body
                shown = await fetch(router.http, "GET", f"{router.url}/metrics")
                counts.append(b"pointsman_unpriced_attempts_total{" in shown.body)
            assert counts == [False, True]
