"""Whether the ledger, the metrics and ``GET /admin/usage`` agree with what endpoints reported.

    python -m tests.accounting.reconciling [REQUESTS]

Mixed requests (Responses and Chat Completions, streams and not, answers from the cache, limits,
retries, streams that break off, clients that leave) go through a router before two endpoints that
keep totals of what they reported.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from router.core.usage_record import Kind, Provenance, UsageRecord
from tests.accounting.counting_upstream import PLAYS, CountingUpstream
from tests.support.router import Router, endpoint, routing

__all__ = ["Reconciled", "reconciled"]

_PATIENT: Final = {
    "retry_budget": {"ratio": 1.0, "reserve": 10_000},
    "breaker": {"failures": 10**6, "ratio": 1.0},
}
_TIMEOUTS: Final = dict.fromkeys(("connect", "first_byte", "idle", "total"), 120.0)
"""No deadline of the router's ends an attempt here: the endpoint has reported its tokens by then,
and nobody would hear of them.
"""

_CLIENT_TIMEOUT: Final = aiohttp.ClientTimeout(total=300)
_KEY: Final = "client-key"
_LIMITED: Final = "limited-key"
_ADMIN: Final = "admin-key"
_AT_ONCE: Final = 50
_KINDS: Final = ("input", "cached", "output")


@dataclass
class Reconciled:
    """Totals by token kind of what was reported, as each has it; ``answered`` counts statuses."""

    upstream: Counter[str] = field(default_factory=Counter)
    ledger: Counter[str] = field(default_factory=Counter)
    metrics: Counter[str] = field(default_factory=Counter)
    usage: Counter[str] = field(default_factory=Counter)
    answered: Counter[int] = field(default_factory=Counter)
    rows: list[UsageRecord] = field(default_factory=list)
    in_database: int = 0
    attempts: int = 0
    asked: int = 0

    def of(self, provenance: Provenance) -> list[UsageRecord]:
        """The rows whose numbers are from there."""
        return [row for row in self.rows if row.provenance is provenance]


async def reconciled(requests: int, seed: int = 0) -> Reconciled:
    """Make so many requests, and see what everybody has counted."""
    dice = random.Random(seed)
    one, two = CountingUpstream(), CountingUpstream()
    keys = [
        {"name": "a", "key": _KEY, "budgets": [{"period": "total", "tokens": 10**9}]},
        {"name": "b", "key": _LIMITED, "limits": {"requests_per_minute": 2}},
    ]
    async with one, two:
        patient: dict[str, Any] = {"timeouts": _TIMEOUTS}
        ends = [
            endpoint(one, "chat", "chat", models=["m", "only-chat"], max_in_flight=500, **patient),
            endpoint(two, "responses", "native", models=["m", "only-native"], **patient),
        ]
        async with routing(
            *ends,
            auth={"keys": keys},
            admin={"key": _ADMIN},
            cache={"mode": "always"},
            balance=_PATIENT,
        ) as router:
            result = Reconciled()
            turns = asyncio.Semaphore(_AT_ONCE)

            async def ask(number: int) -> None:
                async with turns:
                    result.answered[await _asked(router, number, dice)] += 1

            await asyncio.gather(*(ask(number) for number in range(requests)))
            await router.idle()
            result.upstream = one.reported + two.reported
            result.asked = len(one.requests) + len(two.requests)
            await _read(router, result)
    return result


async def _asked(router: Router, number: int, dice: random.Random) -> int:
    play = dice.choices(PLAYS, weights=(12, 2, 2, 1, 1, 2, 2))[0]
    again = dice.random() < 0.2
    prompt = f"{play} again" if again else f"{play} {number} " + "x" * dice.randrange(80)
    chat = dice.random() < 0.5
    body: dict[str, Any]
    if chat:
        body = {"model": "only-chat", "messages": [{"role": "user", "content": prompt}]}
    else:
        body = {"model": dice.choice(["m", "only-chat", "only-native"]), "input": prompt}
    body["stream"] = play in ("cut", "hold") or dice.random() < 0.5
    key = _LIMITED if dice.random() < 0.05 else _KEY
    path = "/v1/chat/completions" if chat else "/v1/responses"
    headers = {"Authorization": f"Bearer {key}"}
    async with router.http.post(
        router.url + path, json=body, headers=headers, timeout=_CLIENT_TIMEOUT
    ) as response:
        if play == "hold" and response.status == 200:
            while b"one" not in await response.content.readany():
                pass
            return 499
        try:
            await response.read()
        except aiohttp.ClientPayloadError:
            return 0
        return response.status


async def _read(router: Router, result: Reconciled) -> None:
    result.rows = list(router.rows)
    result.attempts = sum(row.kind is not Kind.CACHE for row in result.rows)
    for row in result.of(Provenance.REPORTED):
        result.ledger.update(dict(zip(_KINDS, row.tokens[:3], strict=True)))
    for kind in _KINDS:
        name = "pointsman_tokens_total"
        result.metrics[kind] = int(sum(await router.metric(name, kind=kind, provenance="reported")))
    until = time.monotonic() + 120
    headers = {"Authorization": f"Bearer {_ADMIN}"}
    while result.in_database < len(result.rows) and time.monotonic() < until:
        async with router.http.get(router.url + "/admin/usage?since=1d", headers=headers) as answer:
            total = (await answer.json())["total"]
        result.in_database = total["attempts"] + total["hits"]
        result.usage = Counter({kind: total["tokens"]["reported"][kind] for kind in _KINDS})
        await asyncio.sleep(0.1)


def main() -> None:
    """Run it, and print what everybody has counted."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    result = asyncio.run(reconciled(count))
    print(dict(result.answered))
    for name in ("upstream", "ledger", "metrics", "usage"):
        print(name, dict(getattr(result, name)))
    print(len(result.rows), "rows,", result.in_database, "in the database,", result.asked, "asked")


if __name__ == "__main__":
    main()
