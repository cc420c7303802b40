"""A client's key: who it is, what it may use, and how much of it; and the key that a
request presents.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, Protocol

from router.core.usage_record import NANO
from router.errors import no_access
from router.settings.accounts import ApiKey, BudgetSettings, LimitSettings
from router.settings.model_names import fits

__all__ = [
    "ANYBODY",
    "NO_LIMITS",
    "Budget",
    "Key",
    "KeyLimits",
    "KeyResolver",
    "bearer_token",
    "budgets_of",
    "check_model",
    "is_limited",
    "key_of",
    "limits_of",
    "model_limits_of",
    "presented_key",
    "same_key",
]

Unit = Literal["usd", "tokens"]


@dataclass(frozen=True, slots=True)
class Budget:
    """So much in each period (UTC); ``most`` is in nano-USD or in tokens."""

    period: Literal["day", "week", "month", "total"]
    unit: Unit
    most: int


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """So many a minute, and at once; None is any number."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None


NO_LIMITS: Final = KeyLimits()


@dataclass(frozen=True, slots=True)
class Key:
    """See ``router.settings.accounts.ApiKey``. ``expires`` is in Unix time; ``model_limits`` are by
    pattern; ``virtual`` keys were made at run time.
    """

    name: str
    models: tuple[str, ...] | None = None
    endpoints: tuple[str, ...] | None = None
    expires: float | None = None
    tags: tuple[str, ...] = ()
    priority: int = 1
    budgets: tuple[Budget, ...] = ()
    limits: KeyLimits = NO_LIMITS
    model_limits: tuple[tuple[str, KeyLimits], ...] = ()
    virtual: bool = False

    def may_use(self, model: str) -> bool:
        """Whether it may use a model, by the client's name for it."""
        return self.models is None or any(fits(model, p) for p in self.models)

    def may_reach(self, endpoint: str) -> bool:
        """Whether an endpoint may serve it."""
        return self.endpoints is None or any(fnmatchcase(endpoint, p) for p in self.endpoints)


ANYBODY: Final = Key("default")
"""Who calls where no keys are configured."""


class KeyResolver(Protocol):
    """Finds keys by what a client presents."""

    async def find(self, presented: str, now: float) -> Key | None:
        """The key, expired or not; None where there is none. ``now`` is in Unix time.

        Raises StateUnavailable where only the database could tell and it does not answer.
        """
        ...


def key_of(settings: ApiKey) -> Key:
    """A configured key."""
    return Key(
        name=settings.name,
        models=settings.models,
        endpoints=settings.endpoints,
        expires=settings.expires.timestamp() if settings.expires is not None else None,
        tags=settings.tags,
        priority=settings.priority,
        budgets=budgets_of(settings.budgets),
        limits=limits_of(settings.limits),
        model_limits=model_limits_of(settings.model_limits),
    )


def budgets_of(settings: tuple[BudgetSettings, ...]) -> tuple[Budget, ...]:
    """Configured budgets."""
    return tuple(
        Budget(one.period, "usd", round(one.usd * NANO))
        if one.usd is not None
        else Budget(one.period, "tokens", one.tokens or 0)
        for one in settings
    )


def limits_of(settings: LimitSettings) -> KeyLimits:
    """Configured limits."""
    return KeyLimits(settings.requests_per_minute, settings.tokens_per_minute, settings.concurrent)


def model_limits_of(settings: Mapping[str, LimitSettings]) -> tuple[tuple[str, KeyLimits], ...]:
    """Configured limits by pattern."""
    return tuple((pattern, limits_of(limits)) for pattern, limits in settings.items())


def is_limited(key: Key, tags: Mapping[str, tuple[Budget, ...]]) -> bool:
    """Whether anything has to be counted for the key; ``tags`` are the budgets of tags."""
    if key.budgets or key.model_limits or key.limits != NO_LIMITS:
        return True
    return bool(tags) and any(tag in tags for tag in key.tags)


def check_model(key: Key, model: str) -> None:
    """Raises ModelNotFound where the key may not use the model, by the client's name for it."""
    if key.models is not None and not key.may_use(model):
        raise no_access(model)


def bearer_token(authorization: str) -> str | None:
    """The token of the scheme ``Bearer``; None where the header has none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def presented_key(headers: Mapping[str, str]) -> str | None:
    """The key in ``Authorization`` or, where that has none, in ``x-api-key``, as Anthropic's
    clients send it. A wrong key in the one is not made good by another in the other.
    """
    token = bearer_token(headers.get("Authorization", ""))
    return token or headers.get("X-Api-Key", "").strip() or None


def same_key(given: str, known: str) -> bool:
    """Whether they are the same, in a time that tells neither where they differ nor how long the
    known one is.
    """
    return hmac.compare_digest(_digest(given), _digest(known))


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogateescape")).digest()
