"""Embeddings, legacy completions and rerankings: asked of a router, and answered by a script."""

from __future__ import annotations

from typing import Any

import orjson

from router.settings.schema import Dialect
from tests.support.router import Reply, Router
from tests.support.upstream import Script, whole

__all__ = ["EMBEDDING", "PATHS", "embedding", "post", "reranking"]

EMBEDDING = "/v1/embeddings"
PATHS: dict[Dialect, str] = {
    "responses": "/v1/embeddings",
    "chat": "/v1/embeddings",
    "ollama": "/api/embed",
}
"""Where an endpoint is asked for embeddings."""

_BODIES: dict[str, dict[str, Any]] = {
    "embeddings": {"input": "hi"},
    "completions": {"prompt": "hi"},
    "rerank": {"query": "q", "documents": ["a", "b"]},
}


async def post(
    router: Router, path: str, headers: dict[str, str] | None = None, **fields: Any
) -> Reply:
    """Ask the model ``m``; what is not said of the request is usual."""
    body = {"model": "m", **_BODIES[path.rpartition("/")[2]], **fields}
    data = orjson.dumps(body)
    async with router.http.post(router.url + path, data=data, headers=headers) as response:
        return Reply(response.status, response.headers, await response.read())


def embedding(dialect: Dialect, *vectors: list[float], tokens: int | None = 3) -> Script:
    """An endpoint's answer with these vectors."""
    if dialect == "ollama":
        return whole(
            orjson.dumps({"model": "up", "embeddings": vectors, "prompt_eval_count": tokens})
        )
    data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(vectors)]
    usage = None if tokens is None else {"prompt_tokens": tokens, "total_tokens": tokens}
    answer = {"object": "list", "data": data, "model": "up", "usage": usage}
    return whole(orjson.dumps(answer))


def reranking(*scores: float) -> Script:
    """An endpoint's answer with a score for each document."""
    results = [{"index": i, "relevance_score": score} for i, score in enumerate(scores)]
    return whole(orjson.dumps({"results": results, "usage": {"total_tokens": 9}}))
