"""Summaries that are waited for: what the client of a stream sees, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.calling_model import Said, outputs_of
from tests.support.compacting import (
    SUMMARY,
    compacting,
    is_for_a_summary,
    summarizes,
    upstream_of,
)
from tests.support.sse import Event, parse_events
from tests.support.tool_stage import ADD, kinds, stage
from tests.support.upstream import Received, Upstream, Wire
from tests.support.waiting import until

JSON = dict[str, Any]

LONG: list[JSON] = [
    {"role": "user", "content": "I am Ann."},
    {"role": "assistant", "content": "Noted. " * 2000},
    {"role": "user", "content": "What is my name?"},
]
MANAGED = [{"type": "compaction", "compact_threshold": 2000}]
TRIGGER = {"type": "compaction_trigger"}
ASKED = [{"input": [*LONG, TRIGGER]}, {"input": LONG, "context_management": MANAGED}]


class Held:
    """An endpoint whose summaries take until they are let go."""

    def __init__(self, answer: Callable[[Received], Said] = summarizes) -> None:
        self.go = asyncio.Event()
        self.asked = 0
        self.left = 0
        self._well = upstream_of("chat", answer).default

    async def __call__(self, wire: Wire) -> None:
        if is_for_a_summary(wire.request):
            self.asked += 1
            waits = [asyncio.ensure_future(one.wait()) for one in (self.go, wire.gone)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for one in waits:
                one.cancel()
            if not self.go.is_set():
                self.left += 1
                return
        assert self._well is not None
        await self._well(wire)


async def opened_early(held: Held, body: JSON) -> list[Event]:
    """The events of a stream that is opened before there is a summary."""
    server = {"open_after": 0.01}
    async with Upstream(default=held) as up, compacting("chat", up, server=server) as on:
        async with on.http.post(
            f"{on.url}/v1/responses",
            json={"model": "m", "stream": True, **body},
            headers={"Authorization": "Bearer sk-ann"},
        ) as response:
            first = await response.content.readuntil(b"\n\n")
            assert b"response.created" in first
            held.go.set()
            events = parse_events(first + await response.read())
        assert held.asked == 1
        return events


@pytest.mark.parametrize("body", ASKED, ids=["trigger", "threshold"])
async def test_the_stream_is_opened_while_the_summary_is_written(body: JSON) -> None:
    events = await opened_early(Held(), body)
    assert [event.json["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    assert events[-1].json["response"]["output"][0]["type"] == "compaction"


async def test_after_the_stream_was_opened_an_error_is_its_end() -> None:
    failed, going_on = [await opened_early(Held(lambda _: [""]), body) for body in ASKED]
    assert failed[-1].type == "response.failed"
    assert failed[-1].json["response"]["error"]["code"] == "server_error"
    assert going_on[-1].type == "response.completed"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", ASKED, ids=["trigger", "threshold"])
async def test_who_leaves_stops_the_summary(body: JSON, stream: bool) -> None:
    held = Held()
    async with Upstream(default=held) as up, compacting("chat", up) as on:
        asking = asyncio.create_task(on.post("/responses", {**body, "stream": stream}))
        await until(lambda: held.asked == 1)
        asking.cancel()
        await until(lambda: held.left == 1)
        held.go.set()
        assert (await on.compact(input=LONG))["output"][-1]["type"] == "compaction"


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_of_the_router_are_run_after_it(stream: bool) -> None:
    def answer(request: Received) -> Said:
        if is_for_a_summary(request):
            return [SUMMARY]
        assert SUMMARY in str(request.json["messages"])
        return ["Sum: " + ", ".join(outputs_of(request))] if outputs_of(request) else [ADD]

    async with stage(answer) as on:
        response = await on.ask(input=LONG, context_management=MANAGED, stream=stream)
        assert kinds(response) == ["compaction", "mcp_list_tools", "mcp_call", "message"]
        assert response["output_text"] == "Sum: 3"
        assert response["usage"]["total_tokens"] == 45
        again = await on.ask(input="Sure?", previous_response_id=response["id"], stream=stream)
        assert again["output_text"].startswith("Sum: 3")
