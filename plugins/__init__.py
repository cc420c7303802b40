"""The bundled plugins, one small file each; they use the contract that third parties use."""

from __future__ import annotations

from typing import Protocol

from cache.core import ResponseCache
from plugins.access_log import AccessLog
from plugins.api_keys import ApiKeys
from plugins.key_scope import KeyScope
from plugins.limits import LimitHit, RequestLimits
from plugins.request_metrics import KnownModel, RequestMetrics
from plugins.response_cache import ResponseCachePlugin, Saved
from router.core.exchange import Exchange
from router.core.key import Key, KeyRing
from router.core.usage_record import Tokens
from router.plugin import Plugin
from router.settings.document import Mistake, SettingsError
from router.settings.schema import Settings
from router.settings.tracing import Tracing
from router.settings.words import install_extra
from router.telemetry.metrics import Metrics
from router.usage.budgets import tag_budgets
from router.usage.rate_limiter import Meter

__all__ = ["Accounts", "default_plugins"]


class Ring(KeyRing, Protocol):
    """Finds keys, also by their names."""

    async def named(self, name: str) -> Key | None:
        """The key of this name; None where there is none, or it is revoked."""
        ...


class Accounts(Protocol):
    """What the bundled plugins need of the accounts."""

    @property
    def saved(self) -> Saved:
        """Books an answer from the cache."""
        ...

    @property
    def meter(self) -> Meter:
        """Counts limits and budgets."""
        ...

    @property
    def limit_hit(self) -> LimitHit:
        """Is told of every refusal."""
        ...

    def ring(self, settings: Settings) -> Ring:
        """What finds the keys of a configuration."""
        ...

    def most(self, model: str, tokens: Tokens) -> int | None:
        """What these tokens may cost, in nano-USD; None where no price is known."""
        ...

    async def charge(self, exchange: Exchange) -> None:
        """Counts in the budgets what an exchange came to that nothing was held for."""
        ...

    def spent_by(self, exchange: Exchange) -> tuple[Tokens, int]:
        """What an exchange came to: tokens, and money in nano-USD."""
        ...

    def context(self, model: str) -> int | None:
        """The context of a model in tokens, where it is known."""
        ...


def default_plugins(
    settings: Settings,
    metrics: Metrics,
    known_model: KnownModel,
    cache: ResponseCache,
    accounts: Accounts,
) -> list[Plugin]:
    """The bundled plugins of this configuration, in order."""
    plugins: list[Plugin] = []
    scope: list[Plugin] = []
    if settings.auth.keys:
        ring = accounts.ring(settings)
        plugins.append(ApiKeys(ring))
        scope = [KeyScope(ring.named), _limits(settings, accounts)]
    if settings.tracing.enabled:
        plugins.append(_tracing(settings.tracing))
    plugins.append(RequestMetrics(metrics, known_model))
    if settings.logging.access:
        plugins.append(AccessLog())
    plugins += scope
    if settings.cache.mode != "off":
        open_after = settings.server.open_after
        saved = accounts.saved
        charge = accounts.charge
        plugins.append(
            ResponseCachePlugin(cache, settings.cache, metrics.cache, open_after, saved, charge)
        )
    return plugins


def _tracing(settings: Tracing) -> Plugin:
    """Raises SettingsError where OpenTelemetry is not installed."""
    try:
        from plugins.tracing import Tracing as TracingPlugin
    except ModuleNotFoundError as exc:
        if not (exc.name or "").startswith("opentelemetry"):
            raise
        problem = f"needs OpenTelemetry; {install_extra('otel')}"
        raise SettingsError([Mistake("tracing.enabled", None, problem)]) from None
    return TracingPlugin(settings)


def _limits(settings: Settings, accounts: Accounts) -> Plugin:
    return RequestLimits(
        accounts.meter,
        price=accounts.most,
        spent_by=accounts.spent_by,
        tags=tag_budgets(settings.accounts.tags),
        context=accounts.context,
        limit_hit=accounts.limit_hit,
    )
