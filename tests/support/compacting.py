"""A model that writes summaries, behind an endpoint of any dialect that has no way to compact."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from router.settings.schema import Dialect
from tests.support.calling_model import Said, calling
from tests.support.fleet import http_client, routed
from tests.support.order import check_order, parse_sse
from tests.support.upstream import Received, Upstream, by_path

__all__ = [
    "SUMMARY",
    "Compacting",
    "compacting",
    "compaction_of",
    "is_for_a_summary",
    "messages_of",
    "summarizes",
    "texts_of",
    "upstream_of",
]

JSON = dict[str, Any]

SUMMARY = "The user is called Ann, and wants a boat."

KEYS = [{"name": name, "key": f"sk-{name}"} for name in ("ann", "bob")]


def messages_of(request: Received) -> list[JSON]:
    """What the model was told, whatever the endpoint speaks."""
    body = request.json
    items: Any = body["input"] if "input" in body else body["messages"]
    return [{"role": "user", "content": items}] if isinstance(items, str) else items


def texts_of(request: Received) -> list[str]:
    """The texts that the model was told."""
    texts = []
    for message in messages_of(request):
        content = message.get("content")
        if isinstance(content, list):
            texts += [part.get("text") or str(part) for part in content]
            continue
        texts.append(str(content if content is not None else message))
    return texts


def is_for_a_summary(request: Received) -> bool:
    """Whether a summary is asked for."""
    return "Write a summary of this conversation" in texts_of(request)[-1]


def summarizes(request: Received) -> Said:
    """A model that does what it is told."""
    if is_for_a_summary(request):
        return [SUMMARY]
    return ["Ann" if any(SUMMARY in text for text in texts_of(request)) else "Who?"]


def upstream_of(dialect: Dialect, answer: Any = summarizes) -> Upstream:
    """An endpoint of that model, which has no ``/responses/compact``."""
    script = calling(dialect, answer)
    paths = ("/v1/responses", "/v1/chat/completions", "/api/chat", "/v1/messages")
    return Upstream(default=by_path(dict.fromkeys(paths, script)))


def compaction_of(output: list[JSON]) -> JSON:
    """The one item of a compacted conversation that is encrypted, and says nothing to others."""
    [item] = [item for item in output if item["type"] == "compaction"]
    assert sorted(item) == ["encrypted_content", "id", "type"]
    assert item["id"].startswith("cmp_")
    assert "Ann" not in item["encrypted_content"]
    return item


@dataclass
class Compacting:
    """A router in front of that model; ``upstream`` is its endpoint."""

    http: aiohttp.ClientSession
    url: str
    upstream: Upstream

    async def post(
        self, path: str, body: JSON, key: str = "sk-ann"
    ) -> tuple[int, bytes, dict[str, str]]:
        headers = {"Authorization": f"Bearer {key}"}
        async with self.http.post(
            f"{self.url}/v1{path}", json={"model": "m", **body}, headers=headers
        ) as response:
            return response.status, await response.read(), dict(response.headers)

    async def compact(self, key: str = "sk-ann", **body: Any) -> JSON:
        """A compacted conversation."""
        status, said, _ = await self.post("/responses/compact", body, key)
        assert status == 200, said
        answer: JSON = orjson.loads(said)
        return answer

    async def ask(self, key: str = "sk-ann", **body: Any) -> JSON:
        """The final Response object; a stream's is checked on its way."""
        status, said, _ = await self.post("/responses", body, key)
        assert status == 200, said
        if body.get("stream"):
            return check_order(parse_sse(said))
        answer: JSON = orjson.loads(said)
        return answer

    async def finished(self, ident: str) -> JSON:
        """A background response, once it is over."""
        headers = {"Authorization": "Bearer sk-ann"}
        async with asyncio.timeout(30):
            while True:
                async with self.http.get(
                    f"{self.url}/v1/responses/{ident}", headers=headers
                ) as response:
                    found: JSON = await response.json()
                if found["status"] not in ("queued", "in_progress"):
                    return found
                await asyncio.sleep(0.01)

    async def refused(self, path: str = "/responses", key: str = "sk-ann", **body: Any) -> JSON:
        """The error that it is."""
        status, said, _ = await self.post(path, body, key)
        error: JSON = orjson.loads(said)["error"]
        return {**error, "status": status}


@asynccontextmanager
async def compacting(
    dialect: Dialect = "chat", upstream: Upstream | None = None, **settings: Any
) -> AsyncIterator[Compacting]:
    """With an ``upstream`` that is there already, it is another router in front of it."""
    if upstream is None:
        async with (
            upstream_of(dialect) as made,
            compacting(dialect, made, **settings) as on,
        ):
            yield on
        return
    endpoint: JSON = {"name": "one", "dialect": dialect, "models": ["m"]}
    endpoint |= {"url": upstream.address + ("" if dialect == "ollama" else "/v1")}
    endpoint |= settings.pop("endpoint", {})
    settings = {"auth": {"keys": KEYS}, **settings}
    async with routed(endpoint, **settings) as url, http_client() as http:
        yield Compacting(http, url, upstream)
