"""The plugin chain: guards, observers, and the lives of plugins."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from router.core.exchange import Exchange, Outcome
from router.core.plugin_chain import PluginChain
from router.core.plugin_hooks import Guard, Observer, Plugin
from router.errors import AuthenticationFailed, InternalError
from tests.support.exchanges import an_exchange
from tests.support.plugin_chain import broke


class Gate(Guard):
    def __init__(self, error: Exception | None = None) -> None:
        self.asked = 0
        self._error = error

    async def admit(self, exchange: Exchange) -> None:
        self.asked += 1
        if self._error is not None:
            raise self._error


async def test_every_guard_is_asked() -> None:
    guards = [Gate(), Gate()]
    await PluginChain(guards).admit(an_exchange())
    assert [guard.asked for guard in guards] == [1, 1]


async def test_the_first_refusal_counts() -> None:
    refusal = AuthenticationFailed("no")
    guards = [Gate(), Gate(refusal), Gate()]
    with pytest.raises(AuthenticationFailed) as caught:
        await PluginChain(guards).admit(an_exchange())
    assert caught.value is refusal
    assert [guard.asked for guard in guards] == [1, 1, 0]


async def test_a_guard_that_breaks_refuses() -> None:
    with capture_logs() as log, pytest.raises(InternalError, match="'Gate'") as caught:
        await PluginChain([Gate(KeyError("secret"))]).admit(an_exchange())
    assert "secret" not in caught.value.message
    assert broke(log) == ["Gate guard broke"]


class Listener(Observer):
    def __init__(self, error: Exception | None = None) -> None:
        self.heard: list[str] = []
        self._error = error

    def _hear(self, what: str) -> None:
        self.heard.append(what)
        if self._error is not None:
            raise self._error

    def started(self, exchange: Exchange) -> None:
        self._hear("started")

    def first_output(self, exchange: Exchange) -> None:
        self._hear("first_output")

    def ended(self, exchange: Exchange) -> None:
        self._hear("ended")


def test_an_observer_that_breaks_is_isolated() -> None:
    listeners = [Listener(KeyError()), Listener()]
    chain = PluginChain(listeners)
    exchange = an_exchange()
    with capture_logs() as log:
        chain.started(exchange)
        chain.first_output(exchange)
        chain.ended(exchange, Outcome.OK)
    for listener in listeners:
        assert listener.heard == ["started", "first_output", "ended"]
    assert broke(log) == ["Listener observer broke"] * 3


def test_an_exchange_begins_its_output_and_ends_once() -> None:
    listener = Listener()
    chain, exchange = PluginChain([listener]), an_exchange()
    result = exchange.result
    chain.first_output(exchange)
    chain.ended(exchange, Outcome.REFUSED)
    times = result.first_output, result.finished
    assert None not in times
    chain.first_output(exchange)
    chain.ended(exchange, Outcome.OK)
    assert (result.first_output, result.finished) == times
    assert result.outcome is Outcome.REFUSED
    assert listener.heard == ["first_output", "ended"]


class Living(Plugin):
    def __init__(self, life: list[str], name: str, *, fails: str = "") -> None:
        self.name = name
        self._life = life
        self._fails = fails

    async def start(self) -> None:
        self._live("start")

    async def stop(self) -> None:
        self._live("stop")

    def _live(self, what: str) -> None:
        self._life.append(f"{what} {self.name}")
        if what == self._fails:
            raise OSError(what)


async def test_stop_is_the_reverse_of_start() -> None:
    life: list[str] = []
    chain = PluginChain(Living(life, name) for name in "abc")
    await chain.start()
    await chain.stop()
    assert life == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]


async def test_when_one_does_not_start_all_are_stopped() -> None:
    life: list[str] = []
    plugins = [Living(life, "a"), Living(life, "b", fails="start"), Living(life, "c")]
    with pytest.raises(OSError, match="start"):
        await PluginChain(plugins).start()
    assert life == ["start a", "start b", "stop c", "stop b", "stop a"]


async def test_one_that_does_not_stop_does_not_spare_the_others() -> None:
    life: list[str] = []
    chain = PluginChain([Living(life, "a"), Living(life, "b", fails="stop")])
    with capture_logs() as log:
        await chain.stop()
    assert life == ["stop b", "stop a"]
    assert broke(log) == ["b plugin did not stop cleanly"]


async def test_one_that_never_stops_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn(Plugin):
        async def stop(self) -> None:
            await asyncio.sleep(3600)

    monkeypatch.setattr("router.core.plugin_chain._STOP_SECONDS", 0.01)
    life: list[str] = []
    with capture_logs() as log:
        await PluginChain([Living(life, "a"), Stubborn()]).stop()
    assert life == ["stop a"]
    assert broke(log) == ["Stubborn plugin did not stop cleanly"]


def test_a_plugin_is_named_after_its_class_unless_it_says_otherwise() -> None:
    class Nameless(Guard):
        pass

    class Named(Nameless):
        name = "named"

    assert (Nameless().name, Named().name, Living([], "x").name) == ("Nameless", "named", "x")
