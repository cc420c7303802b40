"""Runs that another endpoint takes over: their events are numbered without a gap."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.support.calling import call, finished
from tests.support.router import PATIENCE, endpoint, routing
from tests.support.sse import check_responses_stream
from tests.support.upstream import Upstream, streamed, whole

TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]
KIND = "application/x-ndjson"


def said(text: str) -> bytes:
    """A line of Ollama's that says this and ends the answer."""
    line: dict[str, Any] = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
    line |= {"message": {"role": "assistant", "content": text}}
    line |= {"done": True, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 1}
    return orjson.dumps(line) + b"\n"


@pytest.mark.parametrize("durable", [False, True])
async def test_after_an_answer_in_one_piece_that_is_none(durable: bool) -> None:
    call_text = '{"name": "f", "arguments": {"a": "b"}}'
    async with (
        Upstream(default=whole(said("no call"))) as bad,
        Upstream(default=streamed(said(call_text), kind=KIND)) as good,
    ):
        how: dict[str, Any] = {"background": True}
        if durable:
            how = {"stream": True, "stream_options": {"durable": True}}
        one, two = endpoint(bad, "ollama", "one"), endpoint(good, "ollama", "two")
        async with routing(one, two) as router:
            async with asyncio.timeout(PATIENCE):
                while not bad.requests:  # which one is asked first is drawn by lot
                    text = f"hi {len(good.requests)}"
                    reply = await router.ask(input=text, tools=TOOLS, tool_choice="required", **how)
                    ident = reply.events[0].response["id"] if durable else reply.json["id"]
                    done = await finished(router, ident)
            assert done["status"] == "completed", done["error"]
            query = {"stream": "true"}
            replay = await call(router, "GET", f"/responses/{ident}", params=query)
            assert check_responses_stream(replay.events) == done
