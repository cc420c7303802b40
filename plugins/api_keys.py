"""API keys: who calls is known before a body is read, and which models they may use once it is.

A request for a model that a key may not use is answered as if the model did not exist.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from router.plugin import (
    AuthenticationFailed,
    Exchange,
    Gate,
    Guard,
    Key,
    KeyResolver,
    ModelNotFound,
    PluginContext,
    check_model,
    presented_key,
)

__all__ = ["ApiKeys", "KeyScope", "Named"]


class ApiKeys(Guard):
    """Admits requests that carry one of the configured keys, until it expires."""

    name = "api_keys"

    def __init__(self, key_resolver: KeyResolver, clock: Callable[[], float] = time.time) -> None:
        self._key_resolver = key_resolver
        self._clock = clock

    @classmethod
    def from_context(cls, context: PluginContext) -> ApiKeys:
        """The plugin for the keys of a configuration."""
        resolver = context.services.accounts.key_resolver(context.settings)
        return cls(resolver, context.clock.time)

    async def admit(self, exchange: Exchange) -> None:
        """See ``Guard.admit``: sets the context's ``key``, and its ``caller`` to the key's name."""
        token = presented_key(exchange.request.headers)
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
        exchange.context.key = key
        exchange.context.caller = key.name


def _refused(message: str, code: str | None = None) -> AuthenticationFailed:
    return AuthenticationFailed(message, code=code, headers={"WWW-Authenticate": "Bearer"})


Named = Callable[[str], Awaitable[Key | None]]
"""The key of a name, None where there is none any more; raises RouterError."""


class KeyScope(Gate):
    """Refuses exchanges for models that their key may not use, before anything may answer them.

    That it is given no other one instead is for ``router.endpoints.plan`` to see to. A run
    goes on without the request that it came with: its key is then found by its name, and has to be
    there still.
    """

    name = "key_scope"

    def __init__(self, named: Named) -> None:
        self._named = named

    @classmethod
    def from_context(cls, context: PluginContext) -> KeyScope:
        """The plugin for the keys of a configuration."""
        return cls(context.services.accounts.key_resolver(context.settings).named)

    def concerns(self, key: Key | None) -> bool:
        """See ``Gate.concerns``: a key for all models has nothing to be refused."""
        return key is None or key.models is not None

    async def accept(self, exchange: Exchange) -> None:
        """See ``Gate.accept``."""
        await self.enter(exchange)

    async def enter(self, exchange: Exchange) -> None:
        """See ``Gate.enter``."""
        key = exchange.context.key
        if key is None:
            key = await self._named(exchange.context.caller)
        if key is None:
            raise ModelNotFound("The key that this was asked for with is no more.", param="model")
        if exchange.model is not None:
            check_model(key, exchange.model)
