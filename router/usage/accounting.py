"""Accounts, put together: what books attempts, keeps the ledger, finds keys and counts limits."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cache.data_directory import data_directory
from router.core.exchange import Exchange
from router.core.key import AccountKeyResolver, Key
from router.core.usage_record import NANO, NO_TOKENS, Tokens
from router.endpoints.deployment import best_reported
from router.endpoints.registry import Group, Registry
from router.errors import LimitsUnavailable
from router.fetch.address import on_own_host
from router.response.tokens import prompt_estimates
from router.settings.accounts import AccountsSettings
from router.settings.document import Mistake, SettingsError
from router.settings.schema import Settings, StateSettings
from router.state.connect import SQLITE
from router.state.database import Database
from router.state.maintenance.access import shown_url
from router.telemetry.metrics import Metrics
from router.telemetry.tasks import Tasks
from router.usage.budgets import tag_budgets
from router.usage.embeddings import EmbeddingAccounts
from router.usage.journal import Journal
from router.usage.keys import KeyStore
from router.usage.ledger import UsageLedger
from router.usage.memory_limiter import MemoryRateLimiter
from router.usage.rate_limiter import OwnedRateLimiter
from router.usage.recorder import Book, Price, Prices, UsageRecorder
from router.usage.report import spent
from router.usage.virtual_keys import VirtualKeys

if TYPE_CHECKING:
    from router.usage.budgets import TagBudgets
    from router.usage.memory_limiter import OnDown

__all__ = ["Accounting", "journal_directory"]

_MEMORY: Final = ":memory:"

CountElsewhere = Callable[["TagBudgets", "OnDown"], OwnedRateLimiter]
"""Makes what counts limits where another process does it for this one."""


def journal_directory(
    accounts: AccountsSettings, state: StateSettings, environ: Mapping[str, str]
) -> Path | None:
    """``accounts.journal``; else beside the file of SQLite, or in the data directory.

    None is in memory: a database that is in memory ends with the process, so that nothing has to
    outlast it. In the data directory each database has a directory of its own, since what a
    router left behind there must not end up in the database of another.
    """
    if accounts.journal is not None:
        return Path(accounts.journal)
    url = state.url.get_secret_value()
    if url.startswith(SQLITE):
        path = url.removeprefix(SQLITE)
        return None if path == _MEMORY else Path(f"{path}.journal")
    name = sha256(shown_url(state).encode()).hexdigest()[:16]
    return data_directory(environ) / "journal" / name


_TAG: Final = "tag:"
_LOOK_SECONDS: Final = 10.0
_MOST_WATCHED: Final = 1000
_MOST_ASKED: Final = 1000
"""So many models are remembered with their prices."""


class Accounting:
    """The accounts of one application; they outlive its configurations."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        registry: Registry,
        metrics: Metrics,
        count_elsewhere: CountElsewhere | None = None,
    ) -> None:
        self._database = database
        self._registry = registry
        self._metrics = metrics.accounts
        self._tool_metrics = metrics.tools
        self.prices = Prices(settings.accounts)
        self.recorder = UsageRecorder(self.prices.cost, metrics.accounts)
        self.saved = self.recorder.cached
        self.limit_hit = metrics.accounts.limit_hit
        directory = journal_directory(settings.accounts, settings.state, os.environ)
        retention = settings.accounts.retention_days
        self.ledger = UsageLedger(
            database,
            Journal(directory),
            retention_days=retention,
            hourly_after_days=settings.accounts.hourly_after_days,
            daily_after_days=settings.accounts.daily_after_days,
        )
        self.keys = KeyStore(database)
        self._virtual = VirtualKeys(self.keys)
        self._key_resolver = self.key_resolver(settings)
        self.rate_limiter = self._make_rate_limiter(settings.accounts, count_elsewhere)
        self.embeddings = EmbeddingAccounts(
            self.recorder, self.rate_limiter, self.prices.cost, self.named
        )
        self._watched: dict[str, Key] = {}
        self._asked: dict[str, tuple[Group, tuple[Price, ...]]] = {}
        self._tasks = Tasks()
        self.listen(self.ledger.record)
        metrics.accounts.known_model = registry.known_models.__contains__
        metrics.accounts.price_expected = _sellers(settings).__contains__
        rate_limiter = self.rate_limiter
        metrics.accounts.watch_limits(
            lambda: rate_limiter.up, lambda: rate_limiter.uncounted, lambda: rate_limiter.unbudgeted
        )
        figures = self.ledger.figures
        metrics.accounts.watch_ledger(
            lambda: figures().waiting,
            lambda: sum(figures().lost.values()),
            lambda: figures().journal_bytes,
        )

    def listen(self, record: Book) -> None:
        """Have every row told to ``record``, too."""
        self.recorder.books.append(record)

    def key_resolver(self, settings: Settings) -> AccountKeyResolver:
        """What finds the keys of a configuration, and virtual ones."""
        return AccountKeyResolver(settings.auth.keys, self._virtual)

    async def named(self, name: str) -> Key | None:
        """The key of this name, for what goes on without the request that it came with."""
        return await self._key_resolver.named(name)

    async def at_once(self, name: str) -> int | None:
        """How many requests of this key may be under way at once; None is any number."""
        key = await self.named(name)
        return key.limits.concurrent if key is not None else None

    def configure(self, settings: Settings) -> None:
        """Go on with these settings."""
        self.prices.configure(settings.accounts)
        self._asked.clear()
        self._metrics.price_expected = _sellers(settings).__contains__
        self.rate_limiter.tags = tag_budgets(settings.accounts.tags)
        self._key_resolver = self.key_resolver(settings)
        self._key_resolver.warn()

    async def start(self) -> None:
        """Begin; the database has been started."""
        await self.ledger.start()
        await self._virtual.start()
        await self.rate_limiter.start()
        self._key_resolver.warn()
        self._tasks.spawn(self._watch(), "look at budgets")

    async def stop(self) -> None:
        """Write what is left; the database is closed afterwards."""
        await self._tasks.close()
        await self.rate_limiter.close()
        await self._virtual.stop()
        await self.ledger.stop()

    def _make_rate_limiter(
        self, accounts: AccountsSettings, count_elsewhere: CountElsewhere | None
    ) -> OwnedRateLimiter:
        url = accounts.limits.store.get_secret_value()
        tags, on_down = tag_budgets(accounts.tags), accounts.limits.on_down
        if url == "memory://" and count_elsewhere is not None:
            return count_elsewhere(tags, on_down)
        if url == "memory://":
            return MemoryRateLimiter(self.spent, tags=tags, on_down=on_down)
        from router.usage.redis_limiter import RedisRateLimiter

        try:
            return RedisRateLimiter(url, self.spent, tags=tags, on_down=on_down)
        except ValueError as exc:
            raise SettingsError([Mistake("accounts.limits.store", None, str(exc))]) from None

    async def spent(self, owner: str, since: float) -> tuple[int, int]:
        """Tokens and cost of an owner, with what was recorded but not yet written."""
        await self.ledger.flush()
        if owner.startswith(_TAG):
            return await spent(self._database, tag=owner.removeprefix(_TAG), since=since)
        return await spent(self._database, key=owner, since=since)

    def spent_by(self, exchange: Exchange) -> tuple[Tokens, int]:
        """What an exchange came to: tokens, and money in nano-USD."""
        key = exchange.context.key
        if key is not None and (key.budgets or key.tags) and self._watched.get(key.name) is not key:
            self._watched.pop(key.name, None)
            self._watched[key.name] = key
            if len(self._watched) > _MOST_WATCHED:
                del self._watched[next(iter(self._watched))]
        if exchange.result.spent is None:
            return NO_TOKENS, 0
        return exchange.result.spent.tokens, exchange.result.spent.cost

    def most(self, model: str, tokens: Tokens) -> int | None:
        """What these tokens cost at the dearest endpoint that serves a model, in nano-USD; None
        where no price is known.
        """
        group = self._registry.find(model)
        if group is None:
            return None
        known = self._asked.get(model)
        if known is None or known[0] is not group:
            known = self._asked_of(model, group)
        _, prices = known
        now = time.time() if prices else 0.0
        found = None
        for price in prices:
            rates = price.rates(now)
            cost = None if rates is None else rates.cost(tokens)
            if cost is not None and (found is None or cost > found):
                found = cost
        return found

    def _asked_of(self, model: str, group: Group) -> tuple[Group, tuple[Price, ...]]:
        """The prices that those ask who serve a model, each once: remembered, since many may."""
        prices = [
            self.prices.price(one.endpoint.name, one.endpoint.settings.url, one.model)
            for one in group.deployments
        ]
        if len(self._asked) >= _MOST_ASKED:
            self._asked.clear()
        different = {id(price): price for price in prices if price is not None}
        self._asked[model] = group, tuple(different.values())
        return self._asked[model]

    def prompt_tokens(self, exchange: Exchange) -> tuple[int, int]:
        """The tokens of an exchange's prompt: by its text alone, and by what its model has reported
        of others.
        """
        group = None
        if exchange.request.operation.templated:
            group = self._registry.find(exchange.model or "")
        prompts = None
        if group is not None:
            few = group.deployments
            prompts = few[0].prompts if len(few) == 1 else best_reported(few)
        return prompt_estimates(exchange.body, prompts)

    def context(self, model: str) -> int | None:
        """The longest context of a model in tokens, where it is known."""
        group = self._registry.find(model)
        if group is None or not group.contexts:
            return None
        known = [deployment.context for deployment in group.deployments]
        return max((context for context in known if context is not None), default=None)

    def tool_called(
        self,
        exchange: Exchange,
        name: str,
        kind: str,
        server: str,
        began: float,
        error: str | None,
        cost: float,
    ) -> None:
        """The router has run a tool for an exchange (see ``tools.loop.Recorded``): have it counted,
        traced, and recorded with its cost.
        """
        seconds = time.monotonic() - began
        self._tool_metrics.called(kind, server, error, seconds)
        if exchange.context.trace is not None:
            exchange.context.trace.tool(name, kind, server, seconds, error)
        self.recorder.tool(exchange, f"{kind}:{server}", began, error, round(cost * NANO))

    async def charge(self, exchange: Exchange) -> None:
        """Count in the budgets what an exchange came to that was not held for: the router's own."""
        if exchange.context.key is not None and exchange.result.spent is not None:
            await self.rate_limiter.charge(
                exchange.context.key, exchange.result.spent.tokens, exchange.result.spent.cost
            )

    async def _watch(self) -> None:
        """Now and then tell the metrics how the budgets of those that ask stand."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for key in tuple(self._watched.values()):
                try:
                    standings = await self.rate_limiter.standing(key)
                except LimitsUnavailable:
                    break
                for standing in standings:
                    budget = standing.budget
                    left = max(0, budget.most - standing.spent - standing.held) / budget.most
                    self._metrics.budget(
                        standing.owner, budget.period, budget.unit, left, standing.resets
                    )


def _sellers(settings: Settings) -> frozenset[str]:
    """The names of the endpoints at which a model without a price is an oversight."""
    everywhere = settings.accounts.report_unpriced == "all"
    return frozenset(
        one.name for one in settings.endpoints if everywhere or not on_own_host(one.url)
    )
