"""What was used: everybody's for the people who run it, their own for clients.

A report may have to look at many rows, so that one is made at a time: the others wait, and the
database has hands left for the requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from router.core.exchange import Exchange
from router.core.key import ANYBODY, Budget, Key, KeyLimits
from router.core.usage_record import NANO
from router.dialects.parameters import bad_value
from router.errors import InvalidRequest, LimitsUnavailable, Overloaded
from router.http.body import only
from router.http.dispatcher import Handler, json_response
from router.state.database import Database
from router.telemetry.log import get_logger
from router.usage.period import moment, month_start
from router.usage.rate_limiter import RateLimiter, Standing
from router.usage.report import BUCKETS, COLUMNS, FILTERS, Bucket, UsageReport, usage

__all__ = ["UsageApi"]

_log = get_logger("router.http")

_DEFAULT_SINCE: Final = "7d"
_DEFAULT_LIMIT: Final = 1000
_MOST: Final = 10_000
_MOST_OWN: Final = 2000
_MAX_DIGITS: Final = 20
_MAX_WAITING: Final = 32
_PATIENCE: Final = 10.0
_NOT_STORED: Final = {"Cache-Control": "no-store"}


class UsageApi:
    """Handlers of ``GET /admin/usage`` and ``GET /v1/usage``; ``rate_limiter`` knows how budgets
    stand.
    """

    def __init__(self, database: Database, rate_limiter: RateLimiter | None = None) -> None:
        self._database = database
        self._rate_limiter = rate_limiter
        self._turn = asyncio.Lock()
        self._waiting = 0

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each route under ``/admin``."""
        return [("GET", "/usage", self.everybody)]

    async def everybody(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /admin/usage: sums over the ledger, in groups.

        ``by`` (columns with commas between them, default none), ``since`` (default 7d), ``until``,
        ``bucket`` (hour or day), ``limit``, and a value for any column to filter by.
        """
        query = request.query
        only(query, "by", "since", "until", "bucket", "limit", *FILTERS)
        by = _by(query)
        bucket = _bucket(query)
        limit = _limit(query)
        since, until = _period(query, time.time(), _DEFAULT_SINCE)
        filters = {name: query[name] for name in FILTERS if name in query}
        report = await self._reported(
            by=by, since=since, until=until, bucket=bucket, filters=filters, limit=limit
        )
        head = {"object": "usage", "since": since, "until": until, "bucket": bucket, "by": by}
        return json_response({**head, **report.shown()})

    async def own(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """GET /v1/usage: what the caller's key used by model, and how its budgets stand.

        ``since`` (default: the beginning of the month), ``until`` and ``bucket`` (hour or day).
        """
        query = request.query
        only(query, "since", "until", "bucket")
        bucket = _bucket(query)
        now = time.time()
        since, until = _period(query, now, str(int(month_start(now))))
        key = exchange.context.key or ANYBODY
        report = await self._reported(
            by=("model",),
            since=since,
            until=until,
            bucket=bucket,
            filters={"key": exchange.context.caller},
            limit=_MOST_OWN,
        )
        head = {
            "object": "usage",
            "key": exchange.context.caller,
            "since": since,
            "until": until,
            "bucket": bucket,
        }
        body = {
            **head,
            **report.shown(),
            "expires_at": key.expires,
            "budgets": await self._budgets(key),
            "limits": _limits(key.limits),
            "model_limits": {pattern: _limits(limits) for pattern, limits in key.model_limits},
        }
        response = json_response(body)
        response.headers.update(_NOT_STORED)
        return response

    async def _reported(
        self,
        *,
        by: Sequence[str],
        since: float,
        until: float | None,
        bucket: Bucket | None,
        filters: Mapping[str, str],
        limit: int,
    ) -> UsageReport:
        async with self._in_turn():
            return await usage(
                self._database,
                by=by,
                since=since,
                until=until,
                bucket=bucket,
                filters=filters,
                limit=limit,
            )

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        if self._waiting >= _MAX_WAITING:
            raise _busy()
        self._waiting += 1
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._turn.acquire()
        except TimeoutError:
            raise _busy() from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turn.release()

    async def _budgets(self, key: Key) -> list[dict[str, Any]]:
        """How they stand; what the key itself has, with nothing known, where nobody can tell."""
        if self._rate_limiter is not None:
            try:
                return [_standing(one) for one in await self._rate_limiter.standing(key)]
            except LimitsUnavailable as error:
                _log.warning("usage without budgets", error=error.message)
        return [_budget(key.name, budget) for budget in key.budgets]


def _busy() -> Overloaded:
    return Overloaded(
        "Too many reports of usage are asked for at once; try again.", headers={"Retry-After": "1"}
    )


def _standing(standing: Standing) -> dict[str, Any]:
    budget = standing.budget
    left = max(0, budget.most - standing.spent - standing.held)
    return {
        **_budget(standing.owner, budget),
        "spent": _amount(budget, standing.spent),
        "reserved": _amount(budget, standing.held),
        "left": _amount(budget, left),
        "resets_at": standing.resets,
    }


def _budget(owner: str, budget: Budget) -> dict[str, Any]:
    return {
        "owner": owner,
        "period": budget.period,
        "unit": budget.unit,
        "budget": _amount(budget, budget.most),
        "spent": None,
        "reserved": None,
        "left": None,
        "resets_at": None,
    }


def _amount(budget: Budget, amount: int) -> float | int:
    return amount / NANO if budget.unit == "usd" else amount


def _limits(limits: KeyLimits) -> dict[str, int | None]:
    return {
        "requests_per_minute": limits.requests_per_minute,
        "tokens_per_minute": limits.tokens_per_minute,
        "concurrent": limits.concurrent,
    }


def _by(query: Mapping[str, str]) -> tuple[str, ...]:
    names = [name.strip() for name in query.get("by", "").split(",")]
    for name in filter(None, names):
        if name not in COLUMNS:
            raise bad_value("by", name, COLUMNS)
    return tuple(dict.fromkeys(filter(None, names)))


def _bucket(query: Mapping[str, str]) -> Bucket | None:
    given = query.get("bucket")
    if given is None:
        return None
    for bucket in BUCKETS:
        if given == bucket:
            return bucket
    raise bad_value("bucket", given, BUCKETS)


def _limit(query: Mapping[str, str]) -> int:
    given = query.get("limit")
    if given is None:
        return _DEFAULT_LIMIT
    digits = given[:_MAX_DIGITS]
    if not (digits.isascii() and digits.isdigit() and 1 <= int(digits) <= _MOST):
        raise InvalidRequest(
            f"Invalid 'limit': expected an integer from 1 to {_MOST}.",
            code="invalid_value",
            param="limit",
        )
    return int(digits)


def _period(query: Mapping[str, str], now: float, since: str) -> tuple[float, float | None]:
    begin = _moment("since", query.get("since", since), now)
    if "until" not in query:
        return begin, None
    end = _moment("until", query["until"], now)
    if end <= begin:
        raise InvalidRequest(
            "Invalid 'until': it must be after 'since'.", code="invalid_value", param="until"
        )
    return begin, end


def _moment(name: str, text: str, now: float) -> float:
    try:
        return moment(text, now)
    except ValueError as exc:
        raise InvalidRequest(
            f"Invalid '{name}': it {exc}.", code="invalid_value", param=name
        ) from None
