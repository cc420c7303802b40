"""Credentials of a client's tools: an endpoint that repeats them does not make them known."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import orjson
import pytest

from tests.support.calling import call, finished
from tests.support.native import USAGE, begun, message
from tests.support.reading import native
from tests.support.router import endpoint, routing
from tests.support.upstream import Upstream, streamed, whole

TOOL = {
    "type": "mcp",
    "server_label": "files",
    "server_url": "https://mcp.example/",
    "authorization": "sk-of-the-tool",
    "headers": {"X-Key": "sk-of-the-tool"},
    "allowed_tools": None,
}
ODD = [5, {"type": ["mcp"]}]


@pytest.mark.parametrize("kind", ["whole", "stream", "background", "durable"])
async def test_they_are_neither_shown_nor_kept(tmp_path: Path, kind: str) -> None:
    theirs = begun(tools=[TOOL, *ODD])
    final = {**theirs, "status": "completed", "output": [message("x")], "usage": USAGE}
    script = whole(orjson.dumps(final))
    if kind != "whole":
        created = {"type": "response.created", "response": theirs}
        script = streamed(native(created, {"type": "response.completed", "response": final}))
    path = tmp_path / "state.db"
    async with Upstream(script) as upstream:
        state = {"url": f"sqlite:///{path}"}
        async with routing(endpoint(upstream, "responses"), state=state) as router:
            reply = await router.ask(
                stream=kind in ("stream", "durable"),
                stream_options={"durable": kind == "durable"},
                background=kind == "background",
                tools=[TOOL],
            )
            assert b"sk-of-the-tool" not in reply.body
            streams = kind in ("stream", "durable")
            answer = reply.events[0].response if streams else reply.json
            kept = await finished(router, answer["id"])
            assert kept["status"] == "completed"
            if kind in ("whole", "stream"):
                shown = {k: v for k, v in TOOL.items() if k not in ("authorization", "headers")}
                assert kept["tools"] == [shown, *ODD]
            again = await call(router, "GET", f"/responses/{answer['id']}")
            assert b"sk-of-the-tool" not in again.body
            assert upstream.requests[-1].json["tools"] == [TOOL]
    database = sqlite3.connect(path)
    try:
        dump = "\n".join(database.iterdump())
    finally:
        database.close()
    assert b"sk-of-the-tool".hex() not in dump.lower()
    assert "sk-of-the-tool" not in dump
