"""A native Responses upstream that guards its encrypted reasoning, as OpenAI's own does.

A blob is bound to the account (the key) that it was issued to: another account's is a 400. An
answer to a question that has earlier reasoning needs its blob. Nothing is stored, so that an item
id is looked up in vain: a 404. Whatever it was sent is kept for the test to look at.
"""

from __future__ import annotations

import base64
import hmac
import itertools
from collections.abc import Iterator
from typing import Any

import orjson

from tests.support.upstream import Script, Upstream, Wire, by_path, json_answer, streamed

__all__ = ["THOUGHT", "Account"]

THOUGHT = "I add one to the last number."

_USAGE = {
    "input_tokens": 5,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 8,
}


class Account(Upstream):
    """The upstream of one account, on a port of its own.

    While ``failing`` it answers with a 500. Its model has encrypted reasoning unless ``encrypts``
    is false.
    """

    def __init__(self, name: str) -> None:
        paths = {"/v1/responses": self._create, "/v1/responses/compact": self._compact}
        lists = {"/v1/models": self._models}
        super().__init__(default=by_path(paths), on_get=by_path(lists))
        self.name = name
        self.key = f"sk-{name}"
        self.failing = False
        self.encrypts = True
        self._ids = itertools.count(1)

    @property
    def endpoint(self) -> dict[str, Any]:
        """Its entry in the settings."""
        url = f"{self.address}/v1"
        return {"name": self.name, "url": url, "dialect": "responses", "api_key": self.key}

    @property
    def received(self) -> list[dict[str, Any]]:
        """The bodies of the requests for answers."""
        return [request.json for request in self.requests if request.path == "/v1/responses"]

    def issue(self, thought: str) -> str:
        """The blob of a thought: only this account can read it."""
        sealed = base64.b64encode(thought.encode()).decode()
        return f"{sealed}.{self._mac(sealed)}"

    def _mac(self, sealed: str) -> str:
        return hmac.new(self.key.encode(), sealed.encode(), "sha256").hexdigest()

    def _reads(self, blob: Any) -> bool:
        sealed, _, mac = str(blob).partition(".")
        return hmac.compare_digest(mac, self._mac(sealed))

    async def _models(self, wire: Wire) -> None:
        listing = json_answer({"object": "list", "data": [{"id": "thinker"}]})
        await (self._unauthorized(wire) or listing)(wire)

    def _unauthorized(self, wire: Wire) -> Script | None:
        if wire.request.headers.get("authorization") == f"Bearer {self.key}":
            return None
        return _refusal(401, "Incorrect API key provided.", "invalid_api_key")

    async def _create(self, wire: Wire) -> None:
        refusal = self._unauthorized(wire)
        if refusal is None:
            if self.failing:
                refusal = _refusal(500, "Out of order.", "server_error")
            else:
                refusal = self._refused(wire.request.json)
        await (refusal or self._answer(wire.request.json))(wire)

    def _refused(self, body: dict[str, Any]) -> Script | None:
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

    async def _compact(self, wire: Wire) -> None:
        """The user's messages, and everything else in one item that only this account can read."""
        body = wire.request.json
        refusal = self._unauthorized(wire) or self._refused({**body, "store": False})
        if refusal is not None:
            await refusal(wire)
            return
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
        answer = {
            "id": f"resp_{self.name}_{number}",
            "object": "response.compaction",
            "created_at": 1_700_000_000,
            "output": output,
            "usage": _USAGE,
        }
        await json_answer(answer)(wire)

    def _answer(self, body: dict[str, Any]) -> Script:
        response = self._response(body)
        if not body.get("stream"):
            return json_answer(response)
        events = [{**e, "sequence_number": n} for n, e in enumerate(_events(response))]
        pieces = [
            b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events
        ]
        return streamed(*pieces)

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


def _refusal(status: int, message: str, code: str | None, param: str | None = None) -> Script:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return json_answer({"error": error}, status)


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
