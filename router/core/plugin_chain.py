"""The hooks of plugins, and the chain that calls them.

A plugin says what it is, and by that how it fails:

    Guard         may refuse an exchange before its body is read      fails closed
    Gate          may refuse it once its body is read, and hears      fails closed
                  when it is over; a run also before it is queued
    Interceptor   may answer instead of the rest of the chain, or     before its first frame: falls
                  change what passes                                  through and is logged; after
                                                                      it the exchange fails
    Observer      hears started, first output, finished               isolated: logged, never felt

Lifecycle: ``start``, use, ``stop``; ``stop`` works even when ``start`` failed halfway. A chain is
built once per configuration and frozen: a stream that began on it ends on it. When the
configuration is reloaded, the plugins of the new chain are made and started while those of the old
one still run, which are stopped after their last exchange.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from router.core.exchange import ClientGone, Exchange, PassingSink, Sink
from router.errors import InternalError, RouterError
from router.response.frame import Frame
from router.telemetry.log import get_logger

__all__ = ["Gate", "Guard", "Interceptor", "Leave", "Observer", "Plugin", "PluginChain", "Proceed"]

Proceed = Callable[[Exchange, Sink], Awaitable[None]]
"""The rest of the chain: answers the exchange into the sink, or raises RouterError."""

Leave = Callable[[], Awaitable[None]]
"""Gives back what a gate has taken; raises nothing."""

_log = get_logger("router.core.plugin_chain")
_P = TypeVar("_P", bound="Plugin")
_STOP_SECONDS: Final = 10.0


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
    """May answer instead of the rest of the chain, or change what passes."""

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


class PluginChain:
    """The plugins of one configuration, in order, frozen."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.plugins = tuple(plugins)
        self._guards = self._all(Guard)
        self._gates = self._all(Gate)
        self._interceptors = self._all(Interceptor)
        observers = self._all(Observer)
        # Those that do not listen are not asked.
        self._started = [o for o in observers if type(o).started is not Observer.started]
        self._first_output = [
            o for o in observers if type(o).first_output is not Observer.first_output
        ]
        self._ended = [o for o in observers if type(o).ended is not Observer.ended]

    def _all(self, kind: type[_P]) -> tuple[_P, ...]:
        return tuple(plugin for plugin in self.plugins if isinstance(plugin, kind))

    async def start(self) -> None:
        """Start every plugin in order; when one fails, stop all and raise its error.

        A note on the error names the plugin.
        """
        name = ""
        try:
            for plugin in self.plugins:
                name = plugin.name
                await plugin.start()
        except BaseException as exc:
            exc.add_note(f"the plugin '{name}' did not start")
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop every plugin, the last first; an error in one does not spare the others."""
        for plugin in reversed(self.plugins):
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await plugin.stop()
            except Exception:
                _log.exception("plugin did not stop cleanly", plugin=plugin.name)

    async def admit(self, exchange: Exchange) -> None:
        """Ask every guard; raises RouterError. A guard that breaks refuses."""
        for guard in self._guards:
            try:
                await guard.admit(exchange)
            except RouterError:
                raise
            except Exception as exc:
                raise _unchecked("guard", guard, exchange) from exc

    async def accept(self, exchange: Exchange) -> None:
        """Ask every gate whether a run may be queued; raises RouterError."""
        for gate in self._gates:
            try:
                await gate.accept(exchange)
            except RouterError:
                raise
            except Exception as exc:
                raise _unchecked("gate", gate, exchange) from exc

    async def run(self, exchange: Exchange, sink: Sink, core: Proceed) -> None:
        """Pass the exchange through the gates and the interceptors to ``core``."""
        await self.through(core)(exchange, sink)

    def through(self, core: Proceed) -> Proceed:
        """``core`` behind the gates and the interceptors.

        No coroutine more than there has to be: each is kept for as long as a stream lasts.
        """
        within = core
        for interceptor in reversed(self._interceptors):
            within = _intercepted(interceptor, within)
        if not self._gates:
            return within

        async def passed(exchange: Exchange, sink: Sink) -> None:
            leaves: list[Leave] = []
            try:
                for gate in self._gates:
                    try:
                        leave = await gate.enter(exchange)
                    except RouterError:
                        raise
                    except Exception as exc:
                        raise _unchecked("gate", gate, exchange) from exc
                    if leave is not None:
                        leaves.append(leave)
                await within(exchange, sink)
            finally:
                for leave in leaves:
                    await leave()

        return passed

    def started(self, exchange: Exchange) -> None:
        """Tell every observer."""
        for observer in self._started:
            try:
                observer.started(exchange)
            except Exception:
                _observer_broke(observer, exchange)

    def first_output(self, exchange: Exchange) -> None:
        """Tell every observer."""
        for observer in self._first_output:
            try:
                observer.first_output(exchange)
            except Exception:
                _observer_broke(observer, exchange)

    def ended(self, exchange: Exchange) -> None:
        """Tell every observer."""
        for observer in self._ended:
            try:
                observer.ended(exchange)
            except Exception:
                _observer_broke(observer, exchange)


def _observer_broke(observer: Observer, exchange: Exchange) -> None:
    _log.exception("observer broke", plugin=observer.name, request_id=exchange.request.id)


def _unchecked(what: str, plugin: Plugin, exchange: Exchange) -> InternalError:
    """The refusal where a guard or a gate broke: it is being handled."""
    _log.exception(f"{what} broke", plugin=plugin.name, request_id=exchange.request.id)
    return InternalError(f"The request could not be checked by '{plugin.name}' and is refused.")


def _intercepted(interceptor: Interceptor, rest: Proceed) -> Proceed:
    """``rest`` behind the interceptor."""

    async def step(exchange: Exchange, sink: Sink) -> None:
        watched = _Watched(sink)
        inner: list[BaseException] = []

        async def proceed(exchange: Exchange, sink: Sink) -> None:
            watched.touched = True
            try:
                await rest(exchange, sink)
            except BaseException as exc:
                inner.append(exc)
                raise

        try:
            await interceptor.intercept(exchange, watched, proceed)
            if not watched.complete:
                raise RuntimeError("it returned before its answer was whole")
        except Exception as exc:
            passes = isinstance(exc, RouterError | ClientGone) or any(exc is e for e in inner)
            if passes and not watched.complete:
                raise
            _log.exception(
                "interceptor broke", plugin=interceptor.name, request_id=exchange.request.id
            )
            if watched.complete:
                # The client has its answer: nothing can be added to it or taken back.
                exchange.result.fail(InternalError.default_code)
            elif watched.touched:
                raise InternalError(f"The plugin '{interceptor.name}' failed.") from exc
            else:
                await rest(exchange, sink)

    return step


class _Watched(PassingSink):
    """A sink that remembers what passed through it.

    ``touched``: an answer has begun, here or further down the chain. ``complete``: it is whole.
    """

    __slots__ = ("complete", "opened", "touched")

    opened: bool

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.opened = sink.opened  # a run's log is open from the start
        self.touched = False
        self.complete = False

    def open(self, headers: Mapping[str, str]) -> None:
        if self.complete or self.opened:
            raise self._misuse()
        self.touched = self.opened = True
        self._sink.open(headers)

    def feed(self, batch: Sequence[Frame]) -> None:
        if self.complete or not self.opened:
            raise self._misuse()
        self.touched = True
        self._sink.feed(batch)

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        if self.complete or self.opened:
            raise self._misuse()
        self.touched = True
        self._sink.finish(status, body, headers)
        self.complete = True

    def end(self) -> None:
        if self.complete or not self.opened:
            raise self._misuse()
        self._sink.end()
        self.complete = True

    def _misuse(self) -> RuntimeError:
        """For what the contract of a sink does not allow, before any of it gets out."""
        if self.complete:
            return RuntimeError("it sent more after the end of its answer")
        return RuntimeError("it fed a stream that it had not opened, or opened one twice")
