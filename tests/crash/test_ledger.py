"""A router that is killed in the middle of traffic loses no row of the usage ledger."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio

from router.core.usage_record import Tokens
from router.state.database import Database
from router.state.statement import Statement
from tests.accounting.counting_upstream import CountingUpstream
from tests.support.processes import Processes, RouterProcess
from tests.support.state import database_url, opened

__all__ = ["database_url"]

_KILLS: Final = 2
_ANSWERS: Final = 100
"""So many whole answers a router gives before it is killed."""

_AT_ONCE: Final = 12
_PATIENCE: Final = 30.0
_ENDS: Final = {"responses": b"event: response.completed\n", "chat": b"data: [DONE]\n\n"}
_PRICE: Final = {"input": 1.0, "cached": 0.5, "output": 3.0}
_ROWS: Final = Statement(
    "SELECT request, outcome, provenance, input, cached, output, cost, id FROM usage"
)


class _Clients:
    """Ask one router, and kill it. ``answered`` has the prompt of every request of which the whole
    answer arrived, by its id.
    """

    def __init__(self, router: RouterProcess, http: aiohttp.ClientSession) -> None:
        self.answered: dict[str, str] = {}
        self._router = router
        self._http = http
        self._rng = random.Random(0)
        self._asked = 0
        self._under_way = 0
        self._until = 0
        self._dead = asyncio.Event()

    async def ask_and_kill(self) -> int:
        """Returns when the router is dead: how many requests were under way then."""
        self._until = len(self.answered) + _ANSWERS
        self._dead.clear()
        async with asyncio.timeout(_PATIENCE), asyncio.TaskGroup() as group:
            workers = [group.create_task(self._work()) for _ in range(_AT_ONCE)]
            waiters = [group.create_task(self._ask("hold")) for _ in range(2)]
            await self._dead.wait()
            under_way = self._under_way
            await asyncio.wait([*workers, *waiters])
        return under_way

    async def _work(self) -> None:
        while not self._dead.is_set():
            await self._ask("flaky" if self._rng.random() < 0.1 else "well")

    async def _ask(self, play: str) -> None:
        self._asked += 1
        prompt = f"{play} {self._asked} " + "x" * self._rng.randrange(200)
        kind = self._rng.choice(("responses", "chat"))
        body: dict[str, Any] = {"model": "m"}
        body["stream"] = play == "hold" or self._rng.random() < 0.5
        if kind == "chat":
            path = "/v1/chat/completions"
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            path = "/v1/responses"
            body |= {"input": prompt, "store": False}
        self._under_way += 1
        try:
            async with self._http.post(self._router.url + path, json=body) as response:
                await self._read(response, _ENDS[kind] if body["stream"] else None, prompt)
        except (aiohttp.ClientError, OSError):
            assert self._dead.is_set(), f"the router broke off by itself: {body}"
        finally:
            self._under_way -= 1

    async def _read(self, response: aiohttp.ClientResponse, end: bytes | None, prompt: str) -> None:
        """The rest of an answer; ``end`` is what its last event begins with, where it is one."""
        assert response.status == 200, await response.text()
        seen = b""
        if end is None:
            seen = await response.read()
        while end is not None and not (end in seen and seen.endswith(b"\n\n")):
            piece = await response.content.readany()
            if not piece:
                raise aiohttp.ClientPayloadError("the stream ended in the middle")
            seen += piece
        self.answered[response.headers["X-Request-Id"]] = prompt
        if len(self.answered) >= self._until and not self._dead.is_set():
            self._dead.set()
            self._router.kill()


@pytest_asyncio.fixture
async def upstream() -> AsyncIterator[CountingUpstream]:
    async with CountingUpstream() as one:
        yield one


@pytest.mark.soak
async def test_kills_lose_no_row(
    database_url: str, tmp_path: Path, upstream: CountingUpstream
) -> None:
    journal = tmp_path / "usage"
    settings = {
        "endpoints": [
            {"name": n, "url": f"{upstream.address}/v1", "dialect": d, "models": ["m"]}
            | {"max_in_flight": 99}
            for n, d in {"native": "responses", "chat": "chat"}.items()
        ],
        "state": {"url": database_url},
        "balance": {"retry_budget": {"ratio": 1.0}, "breaker": {"failures": 999, "ratio": 1.0}},
        "accounts": {"journal": str(journal), "list_prices": False, "prices": {"*": _PRICE}},
    }
    only_in_journal = 0
    async with AsyncExitStack() as stack:
        processes = stack.enter_context(Processes(tmp_path))
        router = await processes.router("router", settings)
        database = await stack.enter_async_context(opened(database_url))
        http = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PATIENCE))
        )
        clients = _Clients(router, http)
        for _ in range(_KILLS):
            assert await clients.ask_and_kill() > 2
            written = {row[0] for row in await database.read(_ROWS)}
            only_in_journal += len(clients.answered.keys() - written)
            router.start()
            await router.ready()
            await _check(database, clients.answered, upstream)
        router.signal(signal.SIGTERM)
        assert await router.ended() == 0
        await _check(database, clients.answered, upstream)
    assert only_in_journal, "no kill has come before the rows were written"
    assert [file.name for file in journal.iterdir()] == []
    assert router.complaints() == []


async def _check(database: Database, answered: dict[str, str], upstream: CountingUpstream) -> None:
    """Wait until each of these requests has its row; then compare what there is."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        rows = await database.read(_ROWS)
        good = [row for row in rows if row[1] == "ok"]
        if answered.keys() <= {row[0] for row in good} or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.05)
    assert answered.keys() - {row[0] for row in good} == set(), "rows are lost"
    assert {request: n for request, n in Counter(row[0] for row in good).items() if n > 1} == {}
    assert len({row[-1] for row in rows}) == len(rows)
    for request, _, provenance, *tokens, cost, _ in good:
        if request in answered:
            counts = upstream.counts[answered[request]]
            assert provenance == "reported"
            assert tokens == [counts[kind] for kind in ("input", "cached", "output")]
            assert cost == _cost(Tokens(*tokens))
    failed = Counter(row[0] for row in rows if row[1] != "ok")
    flaky = [request for request, prompt in answered.items() if prompt.startswith("flaky")]
    assert [request for request in flaky if failed[request] != 1] == [], "retries are lost"


def _cost(tokens: Tokens) -> int:
    """In nano-USD: a dollar per million tokens is 1000 for each."""
    fresh = tokens.input - tokens.cached
    return round(
        1000
        * (
            fresh * _PRICE["input"]
            + tokens.cached * _PRICE["cached"]
            + tokens.output * _PRICE["output"]
        )
    )
