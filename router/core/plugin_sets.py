"""The plugin chains of this configuration and of those before it that are still in use.

An exchange ends on the chain that it began on: its guards, interceptors and observers are those of
the configuration under which it came in. A reload puts a chain that has been started in the place
of the current one, whose plugins are stopped once nobody uses them any more.

    PluginSets
    ├── current            what new exchanges, and runs that begin, enter
    └── retired            left by the last that uses it, then stopped
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from router.core.exchange import Exchange, Sink
from router.core.plugin_chain import PluginChain, PluginSet
from router.core.plugin_hooks import Proceed
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["PluginSets", "proceed"]

_log = get_logger("router.core.plugin_sets")

_PATIENCE_SECONDS: Final = 3600.0
"""So long the plugins of a former configuration are kept for exchanges that do not end."""

_STOP_SECONDS: Final = 60.0


class PluginSets:
    """Holds the current plugin set, and sees the retired ones to their end.

    ``core`` is what stands behind the plugins of each. ``patience`` is how many seconds a retired
    one is left to those who use it.
    """

    def __init__(
        self, chain: PluginChain, core: Proceed, *, patience: float = _PATIENCE_SECONDS
    ) -> None:
        self.current = PluginSet(chain, core)
        self._core = core
        self._patience = patience
        self._retired: set[PluginSet] = set()
        self._tasks = Tasks()

    def __len__(self) -> int:
        """How many have plugins that run."""
        return 1 + len(self._retired)

    async def start(self) -> None:
        """Start the plugins of the first one."""
        await self.current.chain.start()

    def swap(self, chain: PluginChain) -> None:
        """Go on with ``chain``, which has been started, and retire the current plugin set."""
        retired, self.current = self.current, PluginSet(chain, self._core)
        retired.retire()
        self._retired.add(retired)
        self._tasks.spawn(self._retire(retired), "retire plugins")

    async def stop(self) -> None:
        """Stop all plugins; nobody uses them any more."""
        for plugin_set in self._retired:
            plugin_set.abandon()
        await self._tasks.wait(_STOP_SECONDS)
        await self._tasks.close()
        await self.current.chain.stop()

    async def _retire(self, plugin_set: PluginSet) -> None:
        if not await plugin_set.left(self._patience):
            _log.warning("plugins are stopped although they are in use", users=plugin_set.users)
        await plugin_set.chain.stop()
        self._retired.discard(plugin_set)


def proceed(exchange: Exchange, sink: Sink) -> Awaitable[None]:
    """Pass an exchange on to the interceptors of its plugin set, and what is behind them."""
    return exchange.context.plugin_set.proceed(exchange, sink)
