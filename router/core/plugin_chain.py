"""The chain that calls the hooks of plugins, and sees to it that they fail only as they may.

A chain is built once per configuration and frozen: a stream that began on it ends on it. When the
configuration is reloaded, the plugins of the new chain are made and started while those of the old
one still run, which are stopped after their last exchange.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from router.core.exchange import ClientGone, Exchange, Outcome, PassingSink, Sink
from router.core.key import Key
from router.core.known_requests import KnownRequests
from router.core.plugin_hooks import Gate, Guard, Interceptor, Observer, Plugin, Proceed
from router.errors import InternalError, RouterError
from router.response.frame import Frame
from router.telemetry.log import get_logger

__all__ = ["PluginChain", "PluginSet"]

_log = get_logger("router.core.plugin_chain")
_P = TypeVar("_P", bound="Plugin")
_STOP_SECONDS: Final = 10.0
_MOST_KEYS: Final = 4096
"""So many keys are remembered with the gates that concern them."""


class PluginChain:
    """The plugins of one configuration, in order, frozen. ``known`` are the requests that one of
    them has remembered; None where none does.
    """

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.plugins = tuple(plugins)
        self._guards = self._all(Guard)
        self._gates = self._all(Gate)
        self._gates_of: dict[str, tuple[Key | None, tuple[Gate, ...]]] = {}
        self._interceptors = self._all(Interceptor)
        remembers = any(one.remembers for one in self._interceptors[:1])
        self.known = KnownRequests() if remembers else None
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
        for gate in self._concerned(exchange):
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

        def passed(exchange: Exchange, sink: Sink) -> Awaitable[None]:
            key = exchange.context.key
            known = self._gates_of.get(key.name if key is not None else "")
            gates = known[1] if known and known[0] is key else self._concerned(exchange)
            return _entered(gates, within, exchange, sink) if gates else within(exchange, sink)

        return passed

    def _concerned(self, exchange: Exchange) -> tuple[Gate, ...]:
        """The gates that concern the exchange's key; they are remembered."""
        key = exchange.context.key
        gates: list[Gate] = []
        for gate in self._gates:
            try:
                if gate.concerns(key):
                    gates.append(gate)
            except Exception as exc:
                raise _unchecked("gate", gate, exchange) from exc
        if len(self._gates_of) >= _MOST_KEYS:
            self._gates_of.clear()
        concerned = tuple(gates)
        self._gates_of[key.name if key is not None else ""] = key, concerned
        return concerned

    def started(self, exchange: Exchange) -> None:
        """Tell every observer."""
        for observer in self._started:
            try:
                observer.started(exchange)
            except Exception:
                _observer_broke(observer, exchange)

    def first_output(self, exchange: Exchange) -> None:
        """The first output is about to leave: note when, and tell every observer; once."""
        if exchange.result.first_output is not None:
            return
        exchange.result.first_output = time.monotonic()
        for observer in self._first_output:
            try:
                observer.first_output(exchange)
            except Exception:
                _observer_broke(observer, exchange)

    def ended(self, exchange: Exchange, outcome: Outcome) -> None:
        """It is over: note how and when, and tell every observer; once."""
        result = exchange.result
        if result.finished is not None:
            return
        result.outcome, result.finished = outcome, time.monotonic()
        for observer in self._ended:
            try:
                observer.ended(exchange)
            except Exception:
                _observer_broke(observer, exchange)


class PluginSet:
    """One configuration's chain, what it leads to, and how many use it."""

    __slots__ = ("_unused", "chain", "proceed", "users")

    def __init__(self, chain: PluginChain, core: Proceed) -> None:
        self.chain = chain
        self.proceed = chain.through(core)
        self.users = 0
        self._unused = asyncio.Event()

    def enter(self) -> PluginSet:
        """Whoever enters keeps the plugins running until it leaves. Returns it."""
        self.users += 1
        return self

    def leave(self) -> None:
        """To be called once for every ``enter``."""
        self.users -= 1
        if not self.users:
            self._unused.set()

    def retire(self) -> None:
        """From now on nobody enters it but those who are in it."""
        if self.users:
            self._unused.clear()
        else:
            self._unused.set()

    async def left(self, timeout: float) -> bool:
        """Once it is retired: wait until nobody uses it, for ``timeout`` seconds at most.

        Returns whether nobody does.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._unused.wait()
        except TimeoutError:
            return False
        return True

    def abandon(self) -> None:
        """Have ``left`` return: whoever is still counted is gone."""
        self._unused.set()


async def _entered(gates: Sequence[Gate], within: Proceed, exchange: Exchange, sink: Sink) -> None:
    """Pass the exchange through these gates to ``within``. What each has taken is given back,
    whatever ends it: also where the exchange is cancelled while another gives back its own.
    """
    gate = gates[0]
    try:
        leave = await gate.enter(exchange)
    except RouterError:
        raise
    except Exception as exc:
        raise _unchecked("gate", gate, exchange) from exc
    try:
        if len(gates) > 1:
            await _entered(gates[1:], within, exchange, sink)
        else:
            await within(exchange, sink)
    finally:
        if leave is not None:
            await leave()


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
