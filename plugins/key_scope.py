"""The models that a key may use: a request for any other is answered as if it did not exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from router.accounts.key import Key
from router.accounts.scope import check_model
from router.errors import InternalError, ModelNotFound, RouterError
from router.exchange import Exchange, Sink
from router.plugin import Interceptor, Proceed
from router.telemetry.log import get_logger

__all__ = ["KeyScope", "Named"]

_log = get_logger("plugins.key_scope")

Named = Callable[[str], Awaitable[Key | None]]
"""The key of a name, None where there is none any more; raises RouterError."""


class KeyScope(Interceptor):
    """Refuses exchanges for models that their key may not use, before anything may answer them.

    It is the model that was asked for that counts; what the configuration has tried in its place
    (``fallbacks``) is the operator's choice. A run goes on without the request that it came with:
    its key is then found by its name, and has to be there still. An interceptor that breaks is
    passed over, and this one must not be: whatever goes wrong in it refuses the exchange.
    """

    name = "key_scope"

    def __init__(self, named: Named) -> None:
        self._named = named

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        """See ``Interceptor.intercept``."""
        try:
            await self._check(exchange)
        except RouterError:
            raise
        except Exception as exc:
            _log.exception("a key could not be checked", request_id=exchange.id)
            raise InternalError("It could not be checked which models this key may use.") from exc
        await proceed(exchange, sink)

    async def _check(self, exchange: Exchange) -> None:
        key = exchange.key
        if key is None:
            key = await self._named(exchange.caller)
        if key is None:
            raise ModelNotFound("The key that this was asked for with is no more.", param="model")
        if exchange.model is not None:
            check_model(key, exchange.model)
