"""Rings of keys over a real database, as two routers have them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pydantic import SecretStr

from plugins.api_keys import ApiKeys
from router.core.exchange import Exchange
from router.core.key import AccountKeyResolver, KeyResolver
from router.settings.accounts import ApiKey
from router.state.database import Database
from router.usage.keys import Issued, KeyStore
from router.usage.virtual_keys import VirtualKeys
from tests.support.exchanges import an_exchange

__all__ = ["Here", "admitted", "configured", "here", "made_by", "secret_of"]

NEVER = 1e6
"""Seconds between two looks at the database that nobody asked for."""


class Here:
    """One router's keys: the configured ``cfg``, whose secret is ``sk-cfg``, and virtual ones."""

    def __init__(self, database: Database, **options: Any) -> None:
        self.store = KeyStore(database)
        self.virtual = VirtualKeys(self.store, **{"every": NEVER, **options})
        self.key_resolver = AccountKeyResolver([configured("cfg")], self.virtual)

    async def name(self, secret: str, *, later: float = 0.0) -> str | None:
        """Whose secret it is, ``later`` seconds from now."""
        key = await self.key_resolver.find(secret, time.time() + later)
        return key.name if key is not None else None


@asynccontextmanager
async def here(database: Database, **options: Any) -> AsyncIterator[Here]:
    """A router's keys, started."""
    one = Here(database, **options)
    await one.virtual.start()
    try:
        yield one
    finally:
        await one.virtual.stop()


def configured(name: str, **fields: Any) -> ApiKey:
    """A configured key with the secret ``sk-NAME``."""
    return ApiKey(name=name, key=SecretStr(f"sk-{name}"), **fields)


def secret_of(issued: Issued) -> str:
    """What is shown once."""
    return issued.secret.get_secret_value()


async def made_by(one: Here, name: str, spec: Mapping[str, Any] | None = None) -> str:
    """The secret of a new key."""
    return secret_of(await one.store.create(name, spec or {}))


async def admitted(key_resolver: KeyResolver, secret: str | None, now: float) -> Exchange:
    """An exchange that the guard let in; raises RouterError."""
    exchange = an_exchange(headers={} if secret is None else {"Authorization": f"Bearer {secret}"})
    await ApiKeys(key_resolver, lambda: now).admit(exchange)
    return exchange
