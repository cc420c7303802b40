"""The hooks of plugins.

A plugin says what it is, and by that how it fails:

    Guard         may refuse an exchange before its body is read      fails closed
    Gate          may refuse it once its body is read, and hears      fails closed
                  when it is over; a run also before it is queued
    Interceptor   may answer instead of the rest of the chain, or     before its first frame: falls
                  change what passes                                  through and is logged; after
                                                                      it the exchange fails
    Observer      hears started, first output, finished               isolated: logged, never felt

Lifecycle: ``start``, use, ``stop``; ``stop`` works even when ``start`` failed halfway.
``PluginChain`` (``core.plugin_chain``) calls them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from router.core.exchange import Exchange, Sink
from router.core.key import Key

__all__ = ["Gate", "Guard", "Interceptor", "Leave", "Observer", "Plugin", "Proceed"]

Proceed = Callable[[Exchange, Sink], Awaitable[None]]
"""The rest of the chain: answers the exchange into the sink, or raises RouterError."""

Leave = Callable[[], Awaitable[None]]
"""Gives back what a gate has taken; raises nothing."""


class Plugin:
    """What every plugin has. ``name`` stands in logs; the class's own where it is not set."""

    name: str = ""

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        if "name" not in vars(cls):
            cls.name = cls.__name__

    def __init__(self, context: object = None) -> None:
        """``context`` is a ``router.plugin.PluginContext``. A plugin that uses it, such as its
        options, has an ``__init__`` of its own.
        """

    async def start(self) -> None:
        """Make ready; called once, before the first exchange."""

    async def stop(self) -> None:
        """Let go of everything, in 10 seconds; called once, also when ``start`` failed or was
        never called because an earlier plugin's did.
        """


class Guard(Plugin):
    """May refuse an exchange before its body is read."""

    async def admit(self, exchange: Exchange) -> None:
        """Return to let it pass, perhaps with ``caller`` set in its context; raise RouterError."""
        raise NotImplementedError


class Gate(Plugin):
    """May refuse an exchange once it is known what it asks for, before anything answers it."""

    def concerns(self, key: Key | None) -> bool:
        """Whether exchanges of this key have to enter; None where there is no key.

        What it says holds for all exchanges of the key: it is not asked for each of them.
        """
        return True

    async def enter(self, exchange: Exchange) -> Leave | None:
        """Return to let it pass, perhaps with what is to be called once it is over, however it
        ends; raise RouterError.
        """
        raise NotImplementedError

    async def accept(self, exchange: Exchange) -> None:
        """Return to let a run be stored and queued, which enters when it begins; raise
        RouterError.
        """


class Interceptor(Plugin):
    """May answer instead of the rest of the chain, or change what passes.

    ``remembers``: it has requests remembered (``router.core.known_requests``). Only the first in
    the chain can: nobody has changed what it is asked.
    """

    remembers: bool = False

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        """Answer into ``sink``, or ``await proceed(exchange, sink)`` with this or another sink.

        When it returns, the answer must be whole: ``finish``, or ``open`` to ``end``. Raise
        RouterError to refuse; ClientGone, which a sink raises, must be let through.
        """
        raise NotImplementedError


class Observer(Plugin):
    """Hears of every exchange. All methods are synchronous and must be quick."""

    def started(self, exchange: Exchange) -> None:
        """The guards let it pass, its body has been read."""

    def first_output(self, exchange: Exchange) -> None:
        """The first output byte of a stream is about to leave."""

    def ended(self, exchange: Exchange) -> None:
        """It is over, also when a guard refused it; ``exchange.result.outcome`` says how."""
