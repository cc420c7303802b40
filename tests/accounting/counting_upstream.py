"""An upstream that misbehaves on command, and keeps the totals of what it reported.

What it is to do stands in the prompt: the first word is one of ``PLAYS``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson
from aiohttp import web

__all__ = ["PLAYS", "CountingUpstream"]

PLAYS: Final = ("well", "silent", "flaky", "broken", "refuse", "cut", "hold")
"""Answers with usage; without; with usage after a 500; with 500s only; 400; breaks off in
mid-stream; waits in mid-stream until the client has gone.
"""

_WORDS: Final = ("one ", "two ", "three ", "four ", "five ", "six ")


class CountingUpstream:
    """Serves Chat Completions and the Responses API. ``reported`` are totals by token kind,
    ``said`` how many characters it said without a report.
    """

    def __init__(self) -> None:
        self.reported: Counter[str] = Counter()
        self.asked = 0
        self.unreported = 0
        self.said = 0
        self._failed: set[str] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve; the base URL, without ``/v1``."""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/responses", self._respond)
        app.router.add_get("/v1/models", self._models)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = body["messages"][-1]["content"]
        if (refusal := self._refusal(prompt)) is not None:
            return refusal
        counts = self._counts(prompt)
        usage = {
            "prompt_tokens": counts["input"],
            "completion_tokens": counts["output"],
            "total_tokens": counts["input"] + counts["output"],
            "prompt_tokens_details": {"cached_tokens": counts["cached"]},
        }
        base = {"id": "chatcmpl-1", "created": 1, "model": "m"}
        silent = prompt.startswith("silent")
        if not body.get("stream"):
            message = {"role": "assistant", "content": "".join(_WORDS)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._report(counts, silent=silent)
            more = {} if silent else {"usage": usage}
            return web.json_response(
                {**base, "object": "chat.completion", "choices": [choice], **more}
            )

        def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return {**base, "object": "chat.completion.chunk", "choices": [choice]}

        chunks = [chunk({"role": "assistant"}), *(chunk({"content": w}) for w in _WORDS)]
        last: list[dict[str, Any] | None] = [chunk({}, "stop")]
        if not silent:
            last.append({**chunk({}), "choices": [], "usage": usage})
        return await self._stream(request, prompt, chunks, [*last, None], counts)

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        given = body["input"]
        prompt = given if isinstance(given, str) else given[-1]["content"]
        prompt = prompt if isinstance(prompt, str) else prompt[0]["text"]
        if (refusal := self._refusal(prompt)) is not None:
            return refusal
        counts, silent = self._counts(prompt), prompt.startswith("silent")
        usage = {
            "input_tokens": counts["input"],
            "input_tokens_details": {"cached_tokens": counts["cached"]},
            "output_tokens": counts["output"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["input"] + counts["output"],
        }
        text = {"type": "output_text", "text": "".join(_WORDS), "annotations": []}
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
        begun = {"id": "resp_1", "object": "response", "created_at": 5, "status": "in_progress"}
        begun |= {"model": "m", "output": [], "usage": None, "error": None}
        done = {**item, "content": [text]}
        ended = {**begun, "status": "completed", "output": [done]}
        ended["usage"] = None if silent else usage
        if not body.get("stream"):
            self._report(counts, silent=silent)
            return web.json_response(ended)
        at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        added = {"type": "response.output_item.added", "output_index": 0}
        part = {"type": "response.content_part.added", **at, "part": {**text, "text": ""}}
        deltas = [{"type": "response.output_text.delta", **at, "delta": w} for w in _WORDS]
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {**added, "item": {**item, "content": []}}, part, *deltas,
        ]  # fmt: skip
        last: list[dict[str, Any] | None] = [
            {"type": "response.output_item.done", "output_index": 0, "item": done},
            {"type": "response.completed", "response": ended},
        ]
        return await self._stream(request, prompt, events, last, counts)

    async def _stream(
        self,
        request: web.Request,
        prompt: str,
        events: list[dict[str, Any]],
        last: list[dict[str, Any] | None],
        counts: dict[str, int],
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        play = prompt.split(maxsplit=1)[0]
        if play in ("cut", "hold"):
            self.unreported += 1
            for event in events[:-2]:
                await response.write(_sse(event))
            if play == "hold":
                await asyncio.sleep(30)  # until the client has gone
            assert request.transport is not None
            request.transport.abort()
            return response
        for event in events:
            await response.write(_sse(event))
        self._report(counts, silent=play == "silent")
        await response.write(b"".join(map(_sse, last)))
        return response

    def _refusal(self, prompt: str) -> web.Response | None:
        self.asked += 1
        play = prompt.split(maxsplit=1)[0]
        if play == "refuse":
            return web.json_response({"error": {"message": "no", "type": "x"}}, status=400)
        if play == "broken" or (play == "flaky" and prompt not in self._failed):
            self._failed.add(prompt)
            return web.json_response({"error": {"message": "oh"}}, status=500)
        return None

    def _counts(self, prompt: str) -> dict[str, int]:
        size = len(prompt)
        return {"input": 100 + size % 37, "cached": size % 11, "output": 10 + size % 29}

    def _report(self, counts: dict[str, int], *, silent: bool) -> None:
        if silent:
            self.unreported += 1
        else:
            self.reported.update(counts)


def _sse(event: dict[str, Any] | None) -> bytes:
    return b"data: %b\n\n" % (b"[DONE]" if event is None else orjson.dumps(event))
