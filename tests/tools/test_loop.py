"""The loop itself, on a tool and a model that do as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from router.core.exchange import ClientGone, Exchange, Sink
from router.core.plugin_chain import PluginSet
from router.response.frame import Frame
from router.settings.tools import ToolsSettings
from router.tools.hosted import HostedCall, ToolResult
from router.tools.loop import ToolLoop
from tests.support.exchanges import an_exchange

Item = dict[str, Any]


class Tool:
    """Runs until it is let go of."""

    kind, server, type, index = "mcp", "client", "mcp_call", 0

    def __init__(self) -> None:
        self.cancelled = 0
        self.may_end = asyncio.Event()

    async def prepare(self) -> None: ...

    def listed(self) -> Sequence[Item]:
        return ()

    def functions(self) -> Sequence[Item]:
        return [{"type": "function", "name": "f", "parameters": {}}]

    def loaded(self) -> Sequence[Item]:
        return ()

    def chosen(self, choice: Mapping[str, Any]) -> Sequence[str] | None:
        return None

    def needs_approval(self, call: HostedCall) -> bool:
        return False

    def item(self, call: HostedCall) -> Item:
        fields = {"server_label": "m", "name": "f", "arguments": call.arguments}
        return {**fields, "output": None, "error": None}

    async def run(self, call: HostedCall, deadline: float) -> ToolResult:
        if call.arguments == '{"quick": true}':
            return ToolResult("done", {"output": "done"})
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ToolResult("late", {"output": "late"})

    def failed(self, call: HostedCall, message: str, error: str) -> ToolResult:
        return ToolResult(message, {"error": {"message": message}}, error)


class Client:
    """A sink that is closed when it has been told of so many finished calls."""

    def __init__(self, leaves_after: int) -> None:
        self.opened = False
        self.paused = False
        self._left = leaves_after

    async def resumed(self) -> None: ...

    def open(self, headers: Mapping[str, str]) -> None:
        self.opened = True

    def feed(self, batch: Sequence[Frame]) -> None:
        self._left -= sum(frame.type == "response.mcp_call.completed" for frame in batch)
        if self._left < 0:
            raise ClientGone

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        raise AssertionError("a stream was asked for")

    def end(self) -> None: ...


class Record:
    """What is kept of an answer that nobody waited for."""

    kept: Item | None = None

    async def finish(self, response: Item, encrypted: Mapping[str, str], last: Any) -> bool:
        raise AssertionError("it did not end")

    def abandon(self, response: Item, encrypted: Mapping[str, str]) -> None:
        self.kept = response


async def calls_twice(exchange: Exchange, sink: Sink) -> None:
    """A model that calls something quick and something slow."""
    calls = [
        {"id": f"fc_{n}", "type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": a}
        for n, a in enumerate(('{"quick": true}', "{}"))
    ]
    assert exchange.record is not None
    await exchange.record.finish(
        {"status": "completed", "output": calls, "usage": None}, {}, cast("Frame", None)
    )


def a_loop() -> ToolLoop:
    loop = ToolLoop.__new__(ToolLoop)
    loop.settings = ToolsSettings()
    loop._recorded = lambda *told: None
    return loop


@pytest.mark.parametrize("leaves_after", [0, 1])
async def test_a_client_that_is_gone_ends_the_calls(leaves_after: int) -> None:
    tool, record, client = Tool(), Record(), Client(leaves_after)
    exchange = an_exchange(
        body={"model": "m", "input": "Go", "stream": True, "tools": [{"type": "mcp"}]},
        stream=True,
        record=record,
    )
    chain = SimpleNamespace(first_output=lambda exchange: None)
    exchange.context.plugin_set = cast("PluginSet", SimpleNamespace(chain=chain))
    answer = asyncio.create_task(a_loop().answer(exchange, client, [tool], calls_twice))
    if leaves_after:
        await asyncio.sleep(0.01)
        tool.may_end.set()
    with pytest.raises(ClientGone):
        await answer
    assert tool.cancelled == (0 if leaves_after else 1)
    assert record.kept is not None
    assert record.kept["status"] == "cancelled"
