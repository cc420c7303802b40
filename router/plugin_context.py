"""What the factory of a plugin is given: ``PluginContext``; see ``router.plugin``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from structlog.typing import FilteringBoundLogger

from cache.core import ResponseCache
from router.core.exchange import Exchange
from router.core.key import Key, KeyResolver
from router.core.plugin_hooks import Plugin
from router.core.usage_record import Tokens
from router.settings.schema import Settings
from router.telemetry.metrics import Metrics
from router.telemetry.plugin_metrics import PluginMetrics
from router.usage.rate_limiter import RateLimiter

__all__ = [
    "LimitHit",
    "ModelDirectory",
    "NamedKeyResolver",
    "PluginClock",
    "PluginContext",
    "PluginFactory",
    "PluginOptionsError",
    "PluginServices",
    "Saved",
    "UsageAccounts",
]

LimitHit = Callable[[str, str], None]
"""Told of every refusal: the key's name, and what refused: ``requests``, ``tokens``,
``concurrent``, ``budget`` or ``unavailable``.
"""

Saved = Callable[[Exchange, str, Tokens, str | None], None]
"""Is told of an exchange that no endpoint was asked for: (exchange, the model that had answered,
what was not used, the response's id).
"""


class PluginClock(Protocol):
    """Tells the time, in seconds."""

    def time(self) -> float:
        """Unix time."""
        ...

    def monotonic(self) -> float:
        """A time that never goes back: that of ``Exchange.started`` and its like."""
        ...


class NamedKeyResolver(KeyResolver, Protocol):
    """Finds keys, also by their names."""

    async def named(self, name: str) -> Key | None:
        """The key of this name; None where there is none, or it is revoked."""
        ...


class UsageAccounts(Protocol):
    """Who may use how much, and what was used; the same for all configurations."""

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


class ModelDirectory(Protocol):
    """The models of the endpoints, by the clients' names for them."""

    @property
    def known_models(self) -> Collection[str]:
        """The names that an endpoint lists or configures, not only by a pattern; kept current."""
        ...

    def public_models(self) -> list[str]:
        """Every model that ``/v1/models`` lists."""
        ...


@dataclass(frozen=True, slots=True)
class PluginServices:
    """The parts of the router that plugins may use. They outlive the plugins."""

    accounts: UsageAccounts
    cache: ResponseCache
    endpoints: ModelDirectory
    metrics: Metrics
    """The router's own; a plugin's are made by ``PluginContext.metrics``."""


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What the factory of a plugin is given.

    ``name`` is what the settings call the plugin; ``logger`` puts it in every line. ``options`` are
    those of the settings, which may hold secrets: never log them.
    """

    name: str
    settings: Settings
    options: Mapping[str, Any] = field(repr=False)
    metrics: PluginMetrics
    logger: FilteringBoundLogger
    clock: PluginClock
    services: PluginServices


PluginFactory = Callable[[PluginContext], Plugin]
"""Makes a plugin; a class can be one."""


class PluginOptionsError(ValueError):
    """An option of a plugin cannot be used. ``problem`` continues its name, such as ``must be a
    number``, without its value, which could be a secret; ``field`` is empty for all of them.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}".strip())
        self.field = field
        self.problem = problem
