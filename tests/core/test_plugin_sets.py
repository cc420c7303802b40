"""Which plugins an exchange meets, and when those of a former configuration are stopped."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from router.core.exchange import Exchange, Sink
from router.core.plugin_chain import PluginChain, PluginSet
from router.core.plugin_hooks import Interceptor, Observer, Proceed
from router.core.plugin_sets import PluginSets, proceed
from tests.support.exchanges import an_exchange
from tests.support.plugin_chain import Page
from tests.support.waiting import until


class Living(Interceptor, Observer):
    """Writes down what happens to it."""

    def __init__(self, life: list[str], name: str) -> None:
        self.life = life
        self.name = name

    async def start(self) -> None:
        self.life.append(f"start {self.name}")

    async def stop(self) -> None:
        self.life.append(f"stop {self.name}")

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        self.life.append(f"intercept {self.name}")
        await proceed(exchange, sink)

    def first_output(self, exchange: Exchange) -> None:
        self.life.append(f"first_output {self.name}")


async def core(exchange: Exchange, sink: Sink) -> None:
    """What stands behind the plugins."""
    sink.finish(200, b"{}", {})


def chain(life: list[str], name: str) -> PluginChain:
    return PluginChain([Living(life, name)])


def entered(plugin_sets: PluginSets) -> Exchange:
    exchange = an_exchange()
    exchange.context.plugin_set = plugin_sets.current.enter()
    return exchange


async def test_an_exchange_stays_with_its_plugins() -> None:
    life: list[str] = []
    plugin_sets = PluginSets(chain(life, "old"), core)
    before = entered(plugin_sets)
    plugin_sets.swap(chain(life, "new"))
    after = entered(plugin_sets)
    page = Page()
    for exchange in (before, after, before):
        await proceed(exchange, page)
        exchange.context.plugin_set.chain.first_output(exchange)
    one, two = (["intercept old", "first_output old"], ["intercept new", "first_output new"])
    assert life == [*one, *two, "intercept old"]  # each has its first output once
    assert page.said == ["200 {}"] * 3
    await plugin_sets.stop()


async def test_the_old_are_stopped_after_their_last_user() -> None:
    life: list[str] = []
    plugin_sets = PluginSets(chain(life, "old"), core)
    await plugin_sets.start()
    users = [plugin_sets.current.enter(), plugin_sets.current.enter()]
    users[0].enter()  # a task beside its request
    plugin_sets.swap(chain(life, "new"))
    await asyncio.sleep(0)
    for user in (users[0], users[1]):
        user.leave()
        await asyncio.sleep(0)
    assert (life, len(plugin_sets)) == (["start old"], 2)
    users[0].leave()
    await until(lambda: len(plugin_sets) == 1)
    assert life == ["start old", "stop old"]
    await plugin_sets.stop()
    assert life == ["start old", "stop old", "stop new"]


async def test_those_that_nobody_uses_are_stopped_at_once() -> None:
    life: list[str] = []
    plugin_sets = PluginSets(chain(life, "0"), core)
    for number in range(1, 4):
        plugin_sets.current.enter().leave()
        plugin_sets.swap(chain(life, str(number)))
    await until(lambda: len(plugin_sets) == 1)
    assert sorted(life) == ["stop 0", "stop 1", "stop 2"]
    await plugin_sets.stop()
    assert life[3:] == ["stop 3"]


async def test_one_that_never_ends_is_not_waited_for_for_ever() -> None:
    life: list[str] = []
    plugin_sets = PluginSets(chain(life, "old"), core, patience=0.01)
    user = plugin_sets.current.enter()
    with capture_logs() as log:
        plugin_sets.swap(chain(life, "new"))
        await until(lambda: len(plugin_sets) == 1)
    assert life == ["stop old"]
    (line,) = log
    assert (line["event"], line["users"]) == ("plugins are stopped although they are in use", 1)
    user.leave()
    await plugin_sets.stop()
    assert life == ["stop old", "stop new"]


async def test_at_the_end_everything_is_stopped_once_whoever_is_left() -> None:
    life: list[str] = []
    plugin_sets = PluginSets(chain(life, "a"), core)
    plugin_sets.current.enter()
    plugin_sets.swap(chain(life, "b"))
    plugin_sets.current.enter()
    plugin_sets.swap(chain(life, "c"))
    with capture_logs() as log:
        await plugin_sets.stop()
    assert sorted(life[:2]) == ["stop a", "stop b"]
    assert life[2:] == ["stop c"]
    assert log == []


@given(st.lists(st.sampled_from(["enter", "leave first", "leave last", "swap", "yield"])))
def test_any_order_of_things(steps: list[str]) -> None:
    """Every chain is stopped exactly once, and none while it is in use or current."""

    async def play() -> None:
        life: list[str] = []
        plugin_sets = PluginSets(chain(life, "0"), core)
        inside: list[PluginSet] = []
        swaps = 0

        def stopped() -> list[str]:
            return [word.removeprefix("stop ") for word in life]

        def names(users: list[PluginSet]) -> set[str]:
            return {plugin.name for user in users for plugin in user.chain.plugins}

        for step in steps:
            if step == "enter":
                inside.append(plugin_sets.current.enter())
                assert names(inside[-1:]) == {str(swaps)}
            elif step.startswith("leave") and inside:
                inside.pop(0 if step == "leave first" else -1).leave()
            elif step == "swap":
                swaps += 1
                plugin_sets.swap(chain(life, str(swaps)))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not names(inside) & set(stopped())
            assert len(set(stopped())) == len(stopped())
        for user in inside:
            user.leave()
        await until(lambda: len(plugin_sets) == 1)
        await plugin_sets.stop()
        assert sorted(stopped(), key=int) == [str(number) for number in range(swaps + 1)]

    asyncio.run(play())
