"""The bundled plugins, one small file each; they use the contract that third parties use."""

from __future__ import annotations

from typing import Protocol

from cache.core import ResponseCache
from plugins.access_log import AccessLog
from plugins.api_keys import ApiKeys, KeyScope
from plugins.limits import LimitHit, RequestLimits
from plugins.request_metrics import KnownModel, RequestMetrics
from plugins.response_cache import ResponseCachePlugin, Saved
from router.plugin import (
    Exchange,
    Key,
    KeyResolver,
    Metrics,
    Mistake,
    Plugin,
    RateLimiter,
    Settings,
    SettingsError,
    Tokens,
    TracingSettings,
    install_extra,
    tag_budgets,
)

__all__ = ["UsageAccounts", "default_plugins"]


class NamedKeyResolver(KeyResolver, Protocol):
    """Finds keys, also by their names."""

    async def named(self, name: str) -> Key | None:
        """The key of this name; None where there is none, or it is revoked."""
        ...


class UsageAccounts(Protocol):
    """What the bundled plugins need of the accounts."""

    @property
    def saved(self) -> Saved:
        """Books an answer from the cache."""
        ...

    @property
    def rate_limiter(self) -> RateLimiter:
        """Counts limits and budgets."""
        ...

    @property
    def limit_hit(self) -> LimitHit:
        """Is told of every refusal."""
        ...

    def key_resolver(self, settings: Settings) -> NamedKeyResolver:
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

    def prompt_tokens(self, exchange: Exchange) -> tuple[int, int]:
        """The tokens of an exchange's prompt, as far as they can be told before it is sent: by its
        text alone, and as its model is expected to count it.
        """
        ...

    def context(self, model: str) -> int | None:
        """The context of a model in tokens, where it is known."""
        ...


def default_plugins(
    settings: Settings,
    metrics: Metrics,
    known_model: KnownModel,
    cache: ResponseCache,
    accounts: UsageAccounts,
) -> list[Plugin]:
    """The bundled plugins of this configuration, in order."""
    plugins: list[Plugin] = []
    scope: list[Plugin] = []
    if settings.auth.keys:
        key_resolver = accounts.key_resolver(settings)
        plugins.append(ApiKeys(key_resolver))
        scope = [KeyScope(key_resolver.named), _limits(settings, accounts)]
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


def _tracing(settings: TracingSettings) -> Plugin:
    """Raises SettingsError where OpenTelemetry is not installed."""
    try:
        from plugins.tracing import TracingPlugin
    except ModuleNotFoundError as exc:
        if not (exc.name or "").startswith("opentelemetry"):
            raise
        problem = f"needs OpenTelemetry; {install_extra('otel')}"
        raise SettingsError([Mistake("tracing.enabled", None, problem)]) from None
    return TracingPlugin(settings)


def _limits(settings: Settings, accounts: UsageAccounts) -> Plugin:
    return RequestLimits(
        accounts.rate_limiter,
        price=accounts.most,
        spent_by=accounts.spent_by,
        tags=tag_budgets(settings.accounts.tags),
        prompt_tokens=accounts.prompt_tokens,
        context=accounts.context,
        limit_hit=accounts.limit_hit,
    )
