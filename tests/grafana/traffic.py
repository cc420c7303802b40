"""A router under mixed traffic: everything that a metric tells of happens at least once a round."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import orjson

from router.dialects.responses.sealing import seal
from router.simulate import create_backend
from tests.support.calling_model import Said, calling, outputs_of
from tests.support.fetch import fetch
from tests.support.fleet import listening
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.tool_server import McpCalls, mcp_server
from tests.support.upstream import (
    Received,
    Script,
    Upstream,
    Wire,
    json_answer,
    paced,
    refused_port,
    silent,
    streamed,
    whole,
)
from tests.support.waiting import until

__all__ = ["Traffic", "traffic"]

_QUESTION = "How do I reset my password?"
_ANGLES = {_QUESTION: 0.0, "How can I reset my password?": 0.1, "How do I reset my router?": 0.2}
"""Where questions lie on a circle: the cosine of what is between two is their similarity."""

_CHAT = SPEECH["chat"]
_NATIVE = SPEECH["responses"]


async def _steady(wire: Wire) -> None:
    """Speaks the Responses API, and embeds questions."""
    await _native_answer(wire.request)(wire)


def _native_answer(request: Received) -> Script:
    body = request.json
    if request.path == "/v1/embeddings":
        places = [_ANGLES.get(text, 1.5 + len(text) / 1000) for text in body["input"]]
        rows = [{"index": i, "embedding": [math.cos(p), math.sin(p)]} for i, p in enumerate(places)]
        return json_answer({"object": "list", "data": rows})
    if not body.get("stream"):
        return whole(_NATIVE.whole)
    if "hang" in orjson.dumps(body["input"]).decode():
        return streamed(*_NATIVE.pieces[:2], kind=_NATIVE.kind, then=silent)
    return streamed(*_NATIVE.pieces, kind=_NATIVE.kind, pause=0.002)


def _calls_once(request: Received) -> Said:
    calls = [("m__add", {"a": 1, "b": 2}), ("m__fail", {})]
    return ["Done"] if outputs_of(request) else calls


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer sk-{key}"}


class Traffic:
    """What clients do. ``sent`` counts their requests, and what the router made of them: a run is
    a request too, when it is run.
    """

    def __init__(self, router: Router) -> None:
        self.router = router
        self.sent = 0
        self._numbers = count()

    def _new(self) -> str:
        """A question that nobody has asked before."""
        return f"What is the meaning of the number {next(self._numbers)}?"

    async def ask(self, *statuses: int, **fields: Any) -> None:
        """Ask something, new unless it is given; the status has to be one of these (none: 200)."""
        self.sent += 1
        reply = await self.router.ask(**{"input": self._new(), "store": False, **fields})
        assert reply.status in (statuses or (200,)), (reply.status, fields, reply.body)

    async def round(self) -> None:
        """Everything once."""
        await self._well()
        await self._badly()
        await self._waiting()
        await self._hedged()
        await self._cached()
        await self._stored()
        await self._limited()
        await self._with_tools()
        await self._compacted()
        await self._left()

    async def _well(self) -> None:
        for stream in (False, True, True):
            await self.ask(stream=stream)
            await self.ask(stream=stream, model="sim-llama")
            await self.ask(stream=stream, chat=True, model="narrow")
        foreign = {"id": "rs_1", "type": "reasoning", "summary": []}
        foreign["encrypted_content"] = seal("something", "an account that is gone")
        await self.ask(input=[foreign, {"role": "user", "content": self._new()}])

    async def _badly(self) -> None:
        await self.ask(400, input=5)
        await self.ask(404, model="nobody's")
        await self._get("/v1/no/such/route", 404)
        for _ in range(4):
            # At one endpoint it fails, at the other it would not; soon nothing is tried again.
            await self.ask(200, 502, model="shaky")
        await self.ask(502, model="sick")
        await self.ask(model="gone")  # has a fallback
        await self.ask(503, model="gone-too")

    async def _get(self, path: str, status: int) -> None:
        self.sent += 1
        reply = await fetch(self.router.http, "GET", self.router.url + path)
        assert reply.status == status, reply.body

    async def _waiting(self) -> None:
        await asyncio.gather(*[self.ask(model="narrow") for _ in range(3)])

    async def _hedged(self) -> None:
        for name in ("late", "soon"):
            target = self.router.deployment(name, "twin")
            for _ in range(20):
                target.late.observe(0.001)
        await self.ask(model="twin", stream=True)

    async def _cached(self) -> None:
        await self.ask(chat=True, model="narrow", n=2)  # which the cache does not do
        await self.ask(input=_QUESTION)
        for question in _ANGLES:
            await self.ask(input=question)
        question = self._new()
        await asyncio.gather(self.ask(input=question), self.ask(input=question))

    async def _stored(self) -> None:
        self.sent += 3
        made = (await self.router.ask(background=True, input=self._new())).json
        url = f"{self.router.url}/v1/responses/{made['id']}"
        async with asyncio.timeout(60):
            while (await fetch(self.router.http, "GET", url)).json["status"] != "completed":
                self.sent += 1
                await asyncio.sleep(0.01)

    async def _with_tools(self) -> None:
        """A tool that works, and one that fails."""
        await self.ask(model="calls", tools=[{"type": "mcp", "server_label": "m"}])

    async def _compacted(self) -> None:
        """A conversation that an endpoint cannot compact."""
        said = {"role": "user", "content": self._new()}
        await self.ask(model="sim-llama", input=[said, {"type": "compaction_trigger"}])

    async def _limited(self) -> None:
        """A key that may ask once a minute."""
        for _ in range(2):
            self.sent += 1
            body = {"model": "m", "input": self._new(), "store": False}
            url, headers = f"{self.router.url}/v1/responses", _bearer("limited")
            reply = await fetch(self.router.http, "POST", url, json=body, headers=headers)
            assert reply.status in (200, 429), reply.body
        assert reply.status == 429

    async def _left(self) -> None:
        """Clients that leave, before the first output and after it."""
        self.sent += 2
        async with self.router.request(stream=True, input="hang", store=False) as response:
            await response.content.readany()
        waiting = asyncio.create_task(self.router.ask(model="slow", stream=True, store=False))
        await until(lambda: self.router.deployment("slow", "slow").in_flight)
        waiting.cancel()
        await asyncio.wait({waiting})
        await until(lambda: not self.router.running)


@contextlib.asynccontextmanager
async def traffic(**sections: Any) -> AsyncIterator[Traffic]:
    """A router before endpoints of every kind: well, sick, slow, narrow and gone."""
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        steady = await enter(Upstream(default=_steady))
        flaky = await enter(Upstream(default=whole(b"{}", 500)))
        narrow = await enter(Upstream(default=paced(_CHAT.script(), 0.05)))
        late = await enter(Upstream(default=paced(_CHAT.script(), 0.3)))
        slow = await enter(Upstream(default=silent))
        box = await enter(listening(create_backend("ollama", pace=0)))
        nobody = await enter(refused_port())
        server = await enter(mcp_server(McpCalls()))
        calls = await enter(Upstream(default=calling("chat", _calls_once)))
        endpoints = [
            endpoint(steady, "responses", "steady", models=["m", "embed", "shaky"]),
            endpoint(flaky, "chat", "flaky", models=["shaky", "sick"], weight=100),
            endpoint(narrow, "chat", "narrow", models=["narrow"], max_in_flight=1),
            endpoint(late, "chat", "late", models=["twin"], weight=100),
            endpoint(steady, "responses", "soon", models=["twin"]),
            endpoint(slow, "chat", "slow", models=["slow"], timeouts={"first_byte": 30}),
            endpoint(nobody, "chat", "gone", models=["gone", "gone-too"]),
            endpoint(calls, "chat", "calls", models=["calls"]),
            {"name": "box", "url": box, "dialect": "ollama"},
        ]
        sections = {
            "tools": {"mcp": {"servers": [{"label": "m", "url": server}]}},
            "auth": {
                "keys": [
                    {
                        "name": "team-a",
                        "key": "sk-team-a",
                        "budgets": [{"period": "day", "usd": 1}],
                    },
                    {"name": "limited", "key": "sk-limited", "limits": {"requests_per_minute": 1}},
                ]
            },
            "fallbacks": {"gone": ["m"]},
            "balance": {
                "hedge": 1.0,
                "health_interval": 0.5,
                "retry_budget": {"ratio": 0, "reserve": 3},
                "breaker": {"failures": 1000, "min_requests": 1000},
            },
            "cache": {
                "mode": "always",
                "semantic": {
                    "enabled": True,
                    "embedder": {"endpoint": "steady", "model": "embed"},
                    "self_check": {"share": 1},
                },
            },
            "accounts": {
                "prices": {"m": {"input": 1, "output": 2}},
                "report_unpriced": "all",
            },
            **sections,
        }
        router = await enter(routing(*endpoints, idle=False, **sections))
        for one in router.fleet.registry.endpoints:
            await until(one.probed.is_set)
        router.http.headers.update(_bearer("team-a"))
        yield Traffic(router)
