"""Talking to a router about what it stores."""

from __future__ import annotations

import asyncio
from typing import Any

from router.settings.schema import Dialect
from tests.support.fetch import fetch
from tests.support.router import PATIENCE, Reply, Router
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream

__all__ = ["FINISHED", "answering", "call", "finished", "said", "texts"]

FINISHED = frozenset({"completed", "incomplete", "failed", "cancelled"})


def answering(dialect: Dialect) -> Upstream:
    """An endpoint that always says the same, whole or as a stream, as it is asked to."""
    return Upstream(default=SPEECH[dialect].script())


async def call(router: Router, method: str, path: str, body: Any = None, **options: Any) -> Reply:
    """A request below ``/v1``; ``key`` is the client's, ``params`` the query."""
    if key := options.pop("key", None):
        options["headers"] = {"Authorization": f"Bearer {key}"}
    if body is not None:
        options["json"] = body
    return await fetch(router.http, method, f"{router.url}/v1{path}", **options)


async def finished(router: Router, ident: str, **options: Any) -> dict[str, Any]:
    """The stored response, once it is finished."""
    async with asyncio.timeout(PATIENCE):
        while True:
            reply = await call(router, "GET", f"/responses/{ident}", **options)
            assert reply.status == 200, reply.body
            if reply.json["status"] in FINISHED:
                return reply.json
            await asyncio.sleep(0.02)


def said(upstream: Upstream) -> list[tuple[str, str]]:
    """Role and text of every message of the last request to an endpoint, whatever its dialect.

    Anthropic's API has messages of one role in a row as one: there it is every block of text.
    """
    request = upstream.requests[-1]
    body = request.json
    if not request.path.endswith("/messages"):
        return texts(body.get("messages") or body["input"])
    system = {"role": "system", "content": body.get("system", [])}
    return [
        (message["role"], block["text"])
        for message in (system, *body["messages"])
        for block in message["content"]
        if block["type"] == "text"
    ]


def texts(items: Any) -> list[tuple[str, str]]:
    """Role and text of every message among these items or messages."""
    if isinstance(items, str):
        return [("user", items)]
    return [(item["role"], _text(item["content"])) for item in items if "role" in item]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if "text" in part)
