"""Clients that leave: the endpoint is let go of, and what there is of the answer is stored."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.calling import call
from tests.support.router import PATIENCE, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, silent, streamed
from tests.support.waiting import until


def rows(path: Path) -> list[tuple[str, str, bytes]]:
    """Id, status and output of every stored response."""
    database = sqlite3.connect(path)
    try:
        return database.execute("SELECT id, status, output FROM responses").fetchall()
    finally:
        database.close()


async def left_after(router: Router, upstream: Upstream, pieces: int) -> None:
    """Ask for a stream, leave after some of it, and wait until the endpoint notices."""
    async with router.request(stream=True) as response:
        if pieces:
            seen = b""
            async with asyncio.timeout(PATIENCE):
                while seen.count(b"output_text.delta") < pieces:
                    seen += await response.content.readany()
        response.close()
    await until(lambda: not upstream.open_wires)


@pytest.mark.parametrize("store", [True, False])
async def test_after_some_output(tmp_path: Path, dialect: Dialect, store: bool) -> None:
    speech = SPEECH[dialect]
    script = streamed(*speech.pieces[:3], kind=speech.kind, then=silent)
    path = tmp_path / "state.db"
    async with Upstream(script) as upstream:
        state = {"url": f"sqlite:///{path}"}
        async with routing(endpoint(upstream, dialect), state=state) as router:
            async with router.request(stream=True, store=store) as response:
                seen = b""
                async with asyncio.timeout(PATIENCE):
                    while seen.count(b"output_text.delta") < 2:
                        seen += await response.content.readany()
                response.close()
            await until(lambda: not upstream.open_wires)
            if not store:
                await router.idle()
                assert rows(path) == []
                return
            await until(lambda: rows(path))
            ident = rows(path)[0][0]
            kept = (await call(router, "GET", f"/responses/{ident}")).json
    first = orjson.loads(seen.split(b"data: ", 2)[1].split(b"\n")[0])
    assert first["response"]["id"] == ident
    assert kept["status"] == "cancelled"
    assert kept["error"] is None
    assert kept["output_text"] == "Hello, "
    assert [item["status"] for item in kept["output"]] == ["incomplete"]


@pytest.mark.parametrize("stream", [False, True])
async def test_before_any_output(tmp_path: Path, dialect: Dialect, stream: bool) -> None:
    async def wait(wire: Any) -> None:
        await wire.gone.wait()

    path = tmp_path / "state.db"
    async with Upstream(wait) as upstream:
        state = {"url": f"sqlite:///{path}"}
        one = endpoint(upstream, dialect, timeouts={"first_byte": 8.0, "total": 9.0})
        async with routing(one, state=state) as router:
            asking = asyncio.ensure_future(router.ask(stream=stream))
            await until(lambda: upstream.requests)
            asking.cancel()
            await asyncio.wait({asking})
            await until(lambda: not upstream.open_wires)
            await until(lambda: rows(path))
            (ident, status, output), *others = rows(path)
            assert (status, output, others) == ("cancelled", b"[]", [])
            again = await router.http.get(f"{router.url}/v1/responses/{ident}")
            assert (await again.json())["status"] == "cancelled"


async def test_a_cancelled_answer_can_be_gone_on_from(tmp_path: Path) -> None:
    speech = SPEECH["chat"]
    path = tmp_path / "state.db"
    script = streamed(*speech.pieces[:3], kind=speech.kind, then=silent)
    async with Upstream(script, streamed(*speech.pieces, kind=speech.kind)) as upstream:
        state = {"url": f"sqlite:///{path}"}
        async with routing(endpoint(upstream, "chat"), state=state) as router:
            await left_after(router, upstream, 2)
            await until(lambda: rows(path))
            reply = await router.ask(stream=True, previous_response_id=rows(path)[0][0])
            assert reply.events[-1].type == "response.completed"
    texts = [message["content"] for message in upstream.requests[-1].json["messages"]]
    assert texts == ["hi", "Hello, ", "hi"]
