"""The models that a key may use: a request for any other is answered as if it did not exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from router.core.exchange import Exchange
from router.core.key import Key, check_model
from router.errors import ModelNotFound
from router.plugin import Gate

__all__ = ["KeyScope", "Named"]

Named = Callable[[str], Awaitable[Key | None]]
"""The key of a name, None where there is none any more; raises RouterError."""


class KeyScope(Gate):
    """Refuses exchanges for models that their key may not use, before anything may answer them.

    That it is given no other one instead is for ``router.endpoints.fallbacks`` to see to. A run
    goes on without the request that it came with: its key is then found by its name, and has to be
    there still.
    """

    name = "key_scope"

    def __init__(self, named: Named) -> None:
        self._named = named

    async def enter(self, exchange: Exchange) -> None:
        """See ``Gate.enter``."""
        key = exchange.key
        if key is None:
            key = await self._named(exchange.caller)
        if key is None:
            raise ModelNotFound("The key that this was asked for with is no more.", param="model")
        if exchange.model is not None:
            check_model(key, exchange.model)
