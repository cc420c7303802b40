"""Explaining embeddings, legacy completions and rerankings: what would be sent is what is sent."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.admin import call_admin, explained
from tests.support.explain_routing import fleet
from tests.support.fetch import fetch
from tests.support.speech import DIALECTS
from tests.support.upstream import whole

ANSWER: dict[str, list[Any]] = {"data": [], "embeddings": [], "choices": [], "results": []}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("embeddings", {"input": ["a", "b"], "user": "u"}),
        ("embeddings", {"input": "a", "encoding_format": "base64"}),
        ("embeddings", {"input": "a", "dimensions": 4}),
        ("completions", {"prompt": "a", "stream": True}),
        ("completions", {"prompt": [[1, 2]], "n": 2}),
        ("rerank", {"query": "a", "documents": ["b"]}),
    ],
)
async def test_the_very_body_that_is_sent(
    dialect: Dialect, path: str, fields: dict[str, Any]
) -> None:
    async with fleet({}, dialect=dialect) as (router, [upstream]):
        upstream.default = whole(orjson.dumps(ANSWER))
        request = {"model": "m", **fields}
        told = await explained(router, request)
        assert not upstream.requests
        await fetch(router.http, "POST", f"{router.url}/v1/{path}", json=request)
        if dialect == "messages" or (dialect == "ollama" and path == "rerank"):
            assert not upstream.requests
            assert told["request"] is None
            assert path in str(told)
            return
        sent = upstream.requests[0]
        assert told["request"]["body"] == sent.json
        assert sent.path.endswith(told["request"]["path"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": [1, ""]}, "input[1]"),
        ({"prompt": []}, "prompt"),
        ({"documents": ["a"]}, "query"),
        ({"input": "", "dimensions": 2}, "input"),
    ],
)
async def test_what_is_wrong_is_told_as_it_is_there(fields: dict[str, Any], param: str) -> None:
    async with fleet({}) as (router, _):
        reply = await call_admin(router, "POST", "/explain", json={"model": "m", **fields})
        assert (reply.status, reply.error["param"]) == (400, param)
