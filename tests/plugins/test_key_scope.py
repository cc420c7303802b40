"""Which models a key may use: everything else is refused, whatever goes wrong."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from plugins.api_keys import KeyScope
from router.core.exchange import Exchange, Sink
from router.core.key import AccountKeyResolver, Key
from router.core.plugin_chain import PluginChain
from router.errors import InternalError, ModelNotFound, RouterError, StateUnavailable
from tests.support.keys import admitted, configured

RING = AccountKeyResolver([configured("all"), configured("some", models=["gpt-*", "llama3"])])


class Deaf:
    """A sink that nothing may be said to here."""

    paused = False
    opened = False

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the client was sent something with {name}")


async def asked(
    key: str | None, model: str | None, scope: KeyScope, *, caller: str = "default"
) -> bool:
    """Whether the request reaches what is behind the plugins; raises what it is refused with."""
    reached = []

    async def core(exchange: Exchange, sink: Sink) -> None:
        reached.append(exchange)
        raise StopAsyncIteration  # as a core that answers would not get here

    if key is None:
        exchange = await admitted(RING, "sk-all", 0.0)
        exchange.context.key, exchange.context.caller = None, caller
    else:
        exchange = await admitted(RING, key, 0.0)
    exchange.model = model
    with pytest.raises((RouterError, StopAsyncIteration)) as caught:
        await PluginChain([scope]).run(exchange, Deaf(), core)
    if isinstance(caught.value, RouterError):
        assert not reached
        raise caught.value
    return bool(reached)


@pytest.mark.parametrize(
    ("key", "model", "may"),
    [
        ("sk-all", "anything", True),
        ("sk-some", "gpt-5", True),
        ("sk-some", "llama3", True),
        ("sk-some", "llama3:70b", False),
        ("sk-some", "GPT-5", False),
        ("sk-some", "my-gpt-5", False),
        ("sk-some", "", False),
        ("sk-some", "x" * 10_000, False),
        ("sk-some", None, True),
    ],
)
async def test_models(key: str, model: str | None, may: bool) -> None:
    if may:
        assert await asked(key, model, KeyScope(RING.named))
        return
    with pytest.raises(ModelNotFound) as caught:
        await asked(key, model, KeyScope(RING.named))
    error = caught.value
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert "does not exist or you do not have access to it" in error.message
    assert len(error.message) < 300


async def test_a_run_has_the_key_that_it_came_with() -> None:
    scope = KeyScope(RING.named)
    assert await asked(None, "gpt-5", scope, caller="some")
    for model, caller in (("other", "some"), ("gpt-5", "gone"), ("gpt-5", "default")):
        with pytest.raises(ModelNotFound):
            await asked(None, model, scope, caller=caller)


async def test_nothing_passes_because_something_broke() -> None:
    class Odd(Key):
        def may_use(self, model: str) -> bool:
            raise ZeroDivisionError

    async def named(name: str) -> Key | None:
        if name == "away":
            raise StateUnavailable("away")
        if name == "odd":
            return Odd("odd", models=("sk-secret",))
        raise ValueError("a bug")

    with structlog.testing.capture_logs() as log:
        for caller in ("odd", "bug"):
            with pytest.raises(InternalError) as caught:
                await asked(None, "gpt-5", KeyScope(named), caller=caller)
            assert "sk-secret" not in caught.value.message
        with pytest.raises(StateUnavailable):
            await asked(None, "gpt-5", KeyScope(named), caller="away")
    assert [line["event"] for line in log] == ["gate broke"] * 2
