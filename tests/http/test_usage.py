"""``GET /admin/usage`` and ``GET /v1/usage``: what they tell, and to whom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from router.core.exchange import Exchange, Operation
from router.core.key import Budget, Key, KeyLimits
from router.core.plugin_chain import PluginChain
from router.core.plugin_sets import PluginSets, proceed
from router.core.usage_record import NANO, Kind, Provenance, Tokens, UsageRecord
from router.errors import LimitsUnavailable
from router.http import usage as usage_module
from router.http.dispatcher import RequestDispatcher
from router.http.usage import UsageApi
from router.settings.schema import ServerSettings
from router.state.database import Database
from router.usage.period import month_start
from router.usage.rate_limiter import Demand, Reservation, Standing
from router.usage.report import usage
from tests.support.fetch import fetch
from tests.support.fleet import http_client, listening
from tests.support.router import Reply
from tests.support.state import database, database_url, opened
from tests.support.usage import recorded, row

__all__ = ["database", "database_url"]

KEY = Key(
    "ann",
    expires=2e9,
    tags=("team",),
    budgets=(Budget("month", "usd", 10 * NANO), Budget("day", "tokens", 1000)),
    limits=KeyLimits(requests_per_minute=60),
    model_limits=(("big*", KeyLimits(concurrent=2)),),
)


class Meter:
    """Knows how the budgets of ann stand, unless it is away."""

    instant = True
    uncounted = unbudgeted = 0

    def __init__(self) -> None:
        self.away = False

    @property
    def up(self) -> bool:
        return not self.away

    async def reserve(self, demand: Demand) -> Reservation:
        raise NotImplementedError

    async def settle(self, hold: Reservation, tokens: Tokens, cost: int) -> None:
        raise NotImplementedError

    async def charge(self, key: Key, tokens: Tokens, cost: int) -> None:
        raise NotImplementedError

    async def standing(self, key: Key) -> Sequence[Standing]:
        if self.away:
            raise LimitsUnavailable("away")
        return [
            Standing(key.name, key.budgets[0], spent=4 * NANO, held=NANO, resets=1.9e9),
            Standing("tag:team", Budget("total", "tokens", 100), spent=90, held=20, resets=None),
        ]


class Api:
    """The routes, as they are asked by somebody."""

    def __init__(self, url: str, http: Any) -> None:
        self._url = url
        self._http = http

    async def get(self, path: str, **query: str) -> Reply:
        return await fetch(self._http, "GET", self._url + path, params=query)

    async def of(self, path: str, **query: str) -> dict[str, Any]:
        """The body of an answer that has to be one."""
        reply = await self.get(path, **query)
        assert reply.status == 200, reply.body
        return reply.json


@asynccontextmanager
async def served(
    store: Database, rate_limiter: Meter | None = None, key: Key | None = KEY
) -> AsyncIterator[Api]:
    async def admit(exchange: Exchange) -> None:
        if key is not None:
            exchange.context.key, exchange.context.caller = key, key.name

    api = UsageApi(store, rate_limiter)
    dispatcher = RequestDispatcher(PluginSets(PluginChain([]), proceed), ServerSettings())
    app = web.Application()
    for method, path, handler in [*api.routes(), ("GET", "/own", api.own)]:
        app.router.add_route(method, path, dispatcher.route(Operation.ADMIN, path, handler, admit))
    async with listening(app) as url, http_client() as http:
        yield Api(url, http)


@pytest_asyncio.fixture
async def memory() -> AsyncIterator[Database]:
    """A database for what does not depend on it."""
    async with opened("sqlite:///:memory:") as store:
        yield store


async def fill(store: Database) -> None:
    now = time.time()
    rows: list[UsageRecord] = [
        row(at=now - 60, key="ann", model="big", tags=("team",)),
        row(at=now - 60, key="ann", model="small", cost=None, endpoint="two", kind=Kind.FALLBACK),
        row(at=now - 60, key="bob", model="big", cost=500),
        row(at=now - 60, key="ann", model="big", kind=Kind.CACHE, provenance=Provenance.CACHED),
        row(at=now - 90 * 86400, key="ann", model="big", cost=7),
    ]
    await recorded(store, *rows)


async def test_everybody(database: Database) -> None:
    await fill(database)
    async with served(database) as api:
        shown = await api.of("/usage", by="key, model")
        assert shown["by"] == ["key", "model"]
        assert [(one["key"], one["model"], one["cost_usd"]) for one in shown["data"]] == [
            ("ann", "big", 1.5e-6),
            ("bob", "big", 5e-7),
            ("ann", "small", None),
        ]
        first = shown["data"][0]
        assert (first["requests"], first["attempts"], first["hits"]) == (2, 1, 1)
        assert first["saved_usd"] == 1.5e-6
        assert first["saved_tokens"]["input"] == 10
        total = shown["total"]
        assert (total["attempts"], total["unpriced"], total["cost_usd"]) == (3, 1, 2e-6)
        assert shown["has_more"] is False
        assert (await api.of("/usage"))["data"] == []
        assert (await api.of("/usage", since="1000000000"))["total"]["attempts"] == 4


async def test_parts_of_it(database: Database) -> None:
    await fill(database)
    async with served(database) as api:

        async def attempts(**query: str) -> int:
            count: int = (await api.of("/usage", **query))["total"]["attempts"]
            return count

        assert await attempts(key="ann") == 2
        assert await attempts(key="ann", model="small") == 1
        assert await attempts(endpoint="two") == 1
        assert await attempts(tag="team") == 1
        assert await attempts(kind="fallback") == 1
        assert await attempts(since="120d", until="30d") == 1
        limited = await api.of("/usage", by="key", limit="1")
        assert [one["key"] for one in limited["data"]] == ["ann"]
        assert limited["has_more"] is True
        daily = await api.of("/usage", since="120d", bucket="day")
        assert [one["attempts"] for one in daily["data"]] in ([1, 3], [1, 2, 1])
        assert all(one["start"] % 86400 == 0 for one in daily["data"])


@pytest.mark.parametrize(
    ("query", "param", "code"),
    [
        ({"by": "key,id"}, "by", "invalid_value"),
        ({"since": "tomorrow"}, "since", "invalid_value"),
        ({"until": "x" * 5000}, "until", "invalid_value"),
        ({"since": "1d", "until": "2d"}, "until", "invalid_value"),
        ({"bucket": "week"}, "bucket", "invalid_value"),
        ({"limit": "0"}, "limit", "invalid_value"),
        ({"limit": "10001"}, "limit", "invalid_value"),
        ({"limit": "9" * 50}, "limit", "invalid_value"),
        ({"limit": "many"}, "limit", "invalid_value"),
        ({"tags": "a"}, "tags", "unknown_parameter"),
        ({"colour": "red"}, "colour", "unknown_parameter"),
    ],
)
async def test_what_is_wrong_is_named(
    memory: Database, query: dict[str, str], param: str, code: str
) -> None:
    async with served(memory) as api:
        reply = await api.get("/usage", **query)
        assert (reply.status, reply.error["param"], reply.error["code"]) == (400, param, code)


async def test_a_filter_is_a_value_and_nothing_else(database: Database) -> None:
    await fill(database)
    async with served(database) as api:
        for value in ("' OR 1=1 --", "%", "ann\0", "\ud7ff", ""):
            assert (await api.of("/usage", key=value, tag=value))["total"]["attempts"] == 0


async def test_ones_own(database: Database) -> None:
    await fill(database)
    now = time.time()
    async with served(database, Meter()) as api:
        reply = await api.get("/own", since="7d")
        assert reply.headers["Cache-Control"] == "no-store"
        shown = reply.json
        assert (shown["object"], shown["key"], shown["expires_at"]) == ("usage", "ann", 2e9)
        assert [(one["model"], one["attempts"]) for one in shown["data"]] == [
            ("big", 1),
            ("small", 1),
        ]
        assert shown["total"]["cost_usd"] == 1.5e-6
        assert shown["limits"] == {
            "requests_per_minute": 60,
            "tokens_per_minute": None,
            "concurrent": None,
        }
        assert shown["model_limits"]["big*"]["concurrent"] == 2
        assert (await api.of("/own"))["since"] == month_start(now)
        assert (await api.of("/own", since="120d", bucket="day"))["total"]["attempts"] == 3


async def test_how_budgets_stand(memory: Database) -> None:
    rate_limiter = Meter()
    async with served(memory, rate_limiter) as api:
        assert (await api.of("/own"))["budgets"] == [
            {
                "owner": "ann",
                "period": "month",
                "unit": "usd",
                "budget": 10.0,
                "spent": 4.0,
                "reserved": 1.0,
                "left": 5.0,
                "resets_at": 1.9e9,
            },
            {
                "owner": "tag:team",
                "period": "total",
                "unit": "tokens",
                "budget": 100,
                "spent": 90,
                "reserved": 20,
                "left": 0,
                "resets_at": None,
            },
        ]
        rate_limiter.away = True
        budgets = (await api.of("/own"))["budgets"]
    assert [(one["budget"], one["spent"], one["left"]) for one in budgets] == [
        (10.0, None, None),
        (1000, None, None),
    ]


async def test_where_there_are_no_keys(memory: Database) -> None:
    await recorded(memory, row(at=time.time(), key="default"), row(at=time.time()))
    async with served(memory, key=None) as api:
        shown = await api.of("/own", since="1d")
        assert (shown["key"], shown["total"]["attempts"], shown["budgets"]) == ("default", 1, [])


@pytest.mark.parametrize("name", ["key", "by", "limit"])
async def test_nobody_asks_for_anothers(memory: Database, name: str) -> None:
    async with served(memory) as api:
        reply = await api.get("/own", **{name: "bob"})
        assert (reply.status, reply.error["param"]) == (400, name)


async def test_one_report_at_a_time(memory: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_module, "_MAX_WAITING", 2)
    begun, go_on = asyncio.Event(), asyncio.Event()
    at_once = most = 0
    real = usage

    async def slow(*args: Any, **more: Any) -> Any:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        begun.set()
        await go_on.wait()
        try:
            return await real(*args, **more)
        finally:
            at_once -= 1

    monkeypatch.setattr(usage_module, "usage", slow)
    async with served(memory) as api:
        first = asyncio.ensure_future(api.get("/usage"))
        await begun.wait()
        others = [asyncio.ensure_future(api.get("/usage")) for _ in range(4)]
        ended, _ = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        go_on.set()
        replies = await asyncio.gather(first, *others)
    assert {one.result().status for one in ended} == {503}
    assert sorted(reply.status for reply in replies) == [200, 200, 200, 503, 503]
    assert most == 1
