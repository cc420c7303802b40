"""A client's key: who it is, what it may use, and how much of it; and the key that a
request presents, and what finds it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, Protocol

from router.core.usage_record import NANO
from router.errors import no_access
from router.settings.accounts import ApiKey, BudgetSettings, LimitSettings
from router.settings.model_names import fits
from router.telemetry.log import get_logger

__all__ = [
    "ANYBODY",
    "NO_LIMITS",
    "AccountKeyResolver",
    "Budget",
    "Key",
    "KeyLimits",
    "KeyResolver",
    "StoredKeys",
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
    tools: tuple[str, ...] | None = None
    default_model: str | None = None

    def may_use(self, model: str) -> bool:
        """Whether it may use a model, by the client's name for it."""
        return self.models is None or any(fits(model, p) for p in self.models)

    def may_reach(self, endpoint: str) -> bool:
        """Whether an endpoint may serve it."""
        return self.endpoints is None or any(fnmatchcase(endpoint, p) for p in self.endpoints)

    def may_run(self, kind: str, server: str) -> bool:
        """Whether the router may run a tool for it: by its type, or by that and its server."""
        return self.tools is None or any(
            fnmatchcase(name, p) for name in (kind, f"{kind}:{server}") for p in self.tools
        )


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
        tools=settings.tools,
        default_model=settings.default_model,
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
    if authorization.startswith("Bearer "):  # as everybody writes it
        return authorization[7:].strip() or None
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


_log = get_logger("router.keys")

_NO_KEY: Final = Key("")


class StoredKeys(Protocol):
    """Virtual keys, which are kept in a database. ``displaced`` are the names of those that do not
    count, because a configured key has the same one.
    """

    displaced: set[str]

    def __len__(self) -> int:
        """How many there are."""
        ...

    def __contains__(self, name: str) -> bool:
        """Whether there is one of this name."""
        ...

    async def find(self, presented: str, now: float) -> Key | None:
        """See ``KeyResolver.find``."""
        ...

    async def named(self, name: str) -> Key | None:
        """The key of this name; None where there is none, or it is revoked."""
        ...


class AccountKeyResolver:
    """Implements ``KeyResolver`` for all keys of one configuration: those in it, and virtual ones.

    Configured keys are kept as digests under a secret of this process, and what was presented is
    looked up by its digest: nobody can predict that, so the time the look-up takes says nothing
    about a key. They go before virtual ones: a virtual key with the name of a configured one,
    which came later, does not count, since what belongs to the name is the configured key's.
    """

    def __init__(self, configured: Iterable[ApiKey], virtual: StoredKeys | None = None) -> None:
        self._hash = hashlib.blake2b(key=os.urandom(32))
        self._virtual = virtual
        self._names: dict[str, Key] = {}
        self._keys: dict[bytes, tuple[bytes, Key]] = {}
        for one in configured:
            secret, key = one.key.get_secret_value(), key_of(one)
            digest = self._digest_of(secret)
            self._keys[digest] = (digest, key)
            self._names[key.name] = key

    def __repr__(self) -> str:
        return f"AccountKeyResolver({len(self._keys)} configured keys)"

    def warn(self) -> None:
        """Say so where virtual keys do not count: they are displaced by configured ones, or nobody
        is asked for a key.

        It is the configuration alone that closes a router: what is in a database, which may be
        away, does not decide who gets in.
        """
        if self._virtual is None:
            return
        if not self._keys and len(self._virtual):
            _log.warning(
                "open to everybody on this machine: auth.keys is empty, so that virtual keys "
                "do not count",
                virtual_keys=len(self._virtual),
            )
        self._virtual.displaced.intersection_update(self._names)
        for name in self._names:
            if name in self._virtual:
                self._warn_of(name, self._virtual)

    async def find(self, presented: str, now: float) -> Key | None:
        """See ``KeyResolver.find``."""
        given = self._digest_of(presented)
        digest, key = self._keys.get(given, (b"", _NO_KEY))
        if hmac.compare_digest(digest, given):
            return key
        if self._virtual is None:
            return None
        found = await self._virtual.find(presented, now)
        if found is not None and found.name in self._names:
            self._warn_of(found.name, self._virtual)
            return None
        return found

    async def named(self, name: str) -> Key | None:
        """The key of this name, expired or not; None where there is none, or it is revoked.

        For what goes on after the request that it came with. Raises StateUnavailable like
        ``find``.
        """
        key = self._names.get(name)
        if key is not None or self._virtual is None:
            return key
        return await self._virtual.named(name)

    def _digest_of(self, key: str) -> bytes:
        digest = self._hash.copy()  # the secret is in it by now
        digest.update(key.encode("utf-8", "surrogateescape"))
        return digest.digest()

    @staticmethod
    def _warn_of(name: str, virtual: StoredKeys) -> None:
        if name not in virtual.displaced:
            virtual.displaced.add(name)
            _log.warning("a virtual key has the name of a configured one: refused", key=name)
