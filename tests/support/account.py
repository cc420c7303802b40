"""A native Responses upstream that guards its encrypted reasoning, as OpenAI's own does.

A blob is bound to the account (the key) that it was issued to: another account's is a 400. An
answer to a question that has earlier reasoning needs its blob. Nothing is stored, so that an item
id is looked up in vain: a 404. Whatever it was sent is kept for the test to look at.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from tests.support.fleet import listening

__all__ = ["THOUGHT", "Account"]

THOUGHT = "I add one to the last number."

_USAGE = {
    "input_tokens": 5,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 8,
}


class Account:
    """The upstream of one account, on a port of its own.

    While ``gate`` is not set it does not answer; while ``failing`` it does with a 500. Its model
    has encrypted reasoning unless ``encrypts`` is false.
    """

    def __init__(self, name: str, port: int = 0) -> None:
        self.name = name
        self.key = f"sk-{name}"
        self.received: list[dict[str, Any]] = []
        self.failing = False
        self.encrypts = True
        self.gate = asyncio.Event()
        self.gate.set()
        self._port = port
        self._ids = itertools.count(1)
        self.url = ""

    @property
    def endpoint(self) -> dict[str, Any]:
        """Its entry in the settings."""
        return {"name": self.name, "url": self.url, "dialect": "responses", "api_key": self.key}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Account]:
        """Listen while the context lasts."""
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/responses", self._create)
        app.router.add_post("/v1/responses/compact", self._compact)
        async with listening(app, self._port) as url:
            self.url = f"{url}/v1"
            self._port = int(url.rpartition(":")[2])
            yield self

    def issue(self, thought: str) -> str:
        """The blob of a thought: only this account can read it."""
        sealed = base64.b64encode(thought.encode()).decode()
        return f"{sealed}.{self._mac(sealed)}"

    def _mac(self, sealed: str) -> str:
        return hmac.new(self.key.encode(), sealed.encode(), "sha256").hexdigest()

    def _reads(self, blob: Any) -> bool:
        sealed, _, mac = str(blob).partition(".")
        return hmac.compare_digest(mac, self._mac(sealed))

    async def _models(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return _refusal(401, "Incorrect API key provided.", "invalid_api_key")
        return web.json_response({"object": "list", "data": [{"id": "thinker"}]})

    async def _create(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return _refusal(401, "Incorrect API key provided.", "invalid_api_key")
        body = orjson.loads(await request.read())
        self.received.append(body)
        if self.failing:
            return _refusal(500, "Out of order.", "server_error")
        refusal = self._refused(body)
        if refusal is not None:
            return refusal
        await self.gate.wait()
        return await self._answer(request, body)

    def _refused(self, body: dict[str, Any]) -> web.Response | None:
        if body.get("store") is not False:
            return _refusal(400, "This account keeps no data: 'store' must be false.", None)
        if not self.encrypts and body.get("include"):
            message = "Encrypted content is not supported with this model."
            return _refusal(400, message, None, param="include")
        items = body["input"] if isinstance(body["input"], list) else []
        for item in items:
            if "id" in item:
                return _refusal(404, f"Item with id '{item['id']}' not found.", None)
            if item.get("type") not in ("reasoning", "compaction"):
                continue
            if not self._reads(item.get("encrypted_content")):
                message = "The encrypted content could not be verified."
                return _refusal(400, message, "invalid_encrypted_content")
        return None

    async def _compact(self, request: web.Request) -> web.Response:
        """The user's messages, and everything else in one item that only this account can read."""
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return _refusal(401, "Incorrect API key provided.", "invalid_api_key")
        body = orjson.loads(await request.read())
        refusal = self._refused({**body, "store": False})
        if refusal is not None:
            return refusal
        number = next(self._ids)
        said = [item for item in body["input"] if item.get("role") == "user"]
        output = [
            *({**item, "id": f"msg_{number}_{i}"} for i, item in enumerate(said)),
            {
                "type": "compaction",
                "id": f"cmp_{number}",
                "encrypted_content": self.issue(str(_thoughts(body["input"]))),
            },
        ]
        return web.json_response(
            {
                "id": f"resp_{self.name}_{number}",
                "object": "response.compaction",
                "created_at": 1_700_000_000,
                "output": output,
                "usage": _USAGE,
            }
        )

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = self._response(body)
        if not body.get("stream"):
            return web.json_response(response)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for number, event in enumerate(_events(response)):
            event["sequence_number"] = number
            await stream.write(
                b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))
            )
        await stream.write_eof()
        return stream

    def _response(self, body: dict[str, Any]) -> dict[str, Any]:
        number = next(self._ids)
        items = body["input"] if isinstance(body["input"], list) else []
        thoughts = _thoughts(items)
        reasoning: dict[str, Any] = {
            "type": "reasoning",
            "id": f"rs_{self.name}_{number}",
            "summary": [],
        }
        if "reasoning.encrypted_content" in (body.get("include") or ()):
            reasoning["encrypted_content"] = self.issue(THOUGHT)
        text = f"{self.name} remembers {thoughts}"
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        message = {
            "type": "message",
            "id": f"msg_{self.name}_{number}",
            "status": "completed",
            "role": "assistant",
            "content": [part],
        }
        return {
            "id": f"resp_{self.name}_{number}",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": body["model"],
            "output": [reasoning, message],
            "parallel_tool_calls": True,
            "store": False,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": _USAGE,
        }


def _thoughts(items: list[dict[str, Any]]) -> int:
    """How many thoughts are among the items, those in a compacted history included."""
    thoughts = 0
    for item in items:
        if item.get("type") == "compaction":
            sealed = item["encrypted_content"].partition(".")[0]
            thoughts += int(base64.b64decode(sealed))
        else:
            thoughts += item.get("type") == "reasoning"
    return thoughts


def _refusal(status: int, message: str, code: str | None, param: str | None = None) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return web.json_response({"error": error}, status=status)


def _events(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    reasoning, message = response["output"]
    yield {"type": "response.output_item.added", "output_index": 0, "item": reasoning}
    yield {"type": "response.output_item.done", "output_index": 0, "item": reasoning}
    (part,) = message["content"]
    at = {"output_index": 1, "item_id": message["id"], "content_index": 0}
    empty = {**part, "text": ""}
    opened = {**message, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": 1, "item": opened}
    yield {"type": "response.content_part.added", **at, "part": empty}
    yield {"type": "response.output_text.delta", **at, "delta": part["text"], "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}
    yield {"type": "response.output_item.done", "output_index": 1, "item": message}
    yield {"type": "response.completed", "response": response}
