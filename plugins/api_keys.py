"""API keys: who calls is known before a body is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from router.core.exchange import Exchange
from router.core.key import KeyResolver, presented_key
from router.errors import AuthenticationFailed
from router.plugin import Guard

__all__ = ["ApiKeys"]


class ApiKeys(Guard):
    """Admits requests that carry one of the ring's keys, until it expires."""

    name = "api_keys"

    def __init__(self, key_resolver: KeyResolver, clock: Callable[[], float] = time.time) -> None:
        self._key_resolver = key_resolver
        self._clock = clock

    async def admit(self, exchange: Exchange) -> None:
        """See ``Guard.admit``: sets ``exchange.key``, and ``exchange.caller`` to its name."""
        token = presented_key(exchange.headers)
        if token is None:
            raise _refused(
                "No API key was given. Send it as 'Authorization: Bearer KEY', or as "
                "'x-api-key: KEY'."
            )
        now = self._clock()
        key = await self._key_resolver.find(token, now)
        if key is None:
            raise _refused("Incorrect API key provided.")
        if key.expires is not None and key.expires <= now:
            when = datetime.fromtimestamp(key.expires, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            raise _refused(f"This API key expired at {when}.", "expired_api_key")
        exchange.key = key
        exchange.caller = key.name


def _refused(message: str, code: str | None = None) -> AuthenticationFailed:
    return AuthenticationFailed(message, code=code, headers={"WWW-Authenticate": "Bearer"})
