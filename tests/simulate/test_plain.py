"""The simulated embeddings, legacy completions and rerankings."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from router.simulate.vectors import DIMENSIONS, as_base64, embed, similarity
from tests.simulate.conftest import Start

OPENAI = ("responses", "chat", "ollama")


async def post(
    http: aiohttp.ClientSession, url: str, path: str, body: dict[str, Any]
) -> tuple[int, Any]:
    async with http.post(url + path, json={"model": "sim", **body}) as answer:
        return answer.status, await answer.json()


def test_a_text_has_one_vector_and_words_bring_texts_together() -> None:
    vector = embed("A red cat")
    assert vector == embed("a RED cat")
    assert len(vector) == DIMENSIONS
    assert similarity(vector, vector) == pytest.approx(1)
    assert similarity(embed("the red cat"), vector) > similarity(embed("a slow train"), vector)
    assert embed("") != embed("a") != embed([1])
    short = embed("a red cat", 4)
    assert similarity(short, short) == pytest.approx(1)
    assert as_base64([1.0, -0.5]) == "AACAPwAAAL8="


@pytest.mark.parametrize("dialect", OPENAI)
async def test_embeddings(start: Start, http: aiohttp.ClientSession, dialect: Any) -> None:
    url = await start(dialect, "sim")
    body = {"input": ["a cat", "b"], "dimensions": 4}
    status, told = await post(http, url, "/v1/embeddings", body)
    assert (status, told["model"]) == (200, "sim")
    assert told["data"][0] == {"object": "embedding", "index": 0, "embedding": embed("a cat", 4)}
    assert told["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    body["encoding_format"] = "base64"
    _, packed = await post(http, url, "/v1/embeddings", body)
    assert packed["data"][1]["embedding"] == as_base64(embed("b", 4))
    _, tokens = await post(http, url, "/v1/embeddings", {"input": [7, 8, 9]})
    assert tokens["data"][0]["embedding"] == embed([7, 8, 9])
    assert tokens["usage"]["total_tokens"] == 3


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("embeddings", {}, "input"),
        ("embeddings", {"input": []}, "input"),
        ("embeddings", {"input": [["a"]]}, "input"),
        ("embeddings", {"input": ["a"] * 2049}, "input"),
        ("embeddings", {"input": "a", "dimensions": 65}, "dimensions"),
        ("embeddings", {"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ("completions", {"prompt": None}, "prompt"),
        ("completions", {"prompt": "a", "n": 0}, "n"),
        ("rerank", {"documents": ["a"]}, "query"),
        ("rerank", {"query": "a", "documents": []}, "documents"),
        ("rerank", {"query": "a", "documents": [1]}, "documents[0]"),
    ],
)
async def test_what_is_wrong_is_named(
    start: Start, http: aiohttp.ClientSession, path: str, body: dict[str, Any], param: str
) -> None:
    status, told = await post(http, await start("chat", "sim"), f"/v1/{path}", body)
    assert (status, told["error"]["param"]) == (400, param)


async def test_ollamas_own_embeddings(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start("ollama", "sim-embed:latest", load_seconds=0.01)
    body = {"model": "sim-embed", "input": ["a cat", "b"], "dimensions": 4}
    status, told = await post(http, url, "/api/embed", body)
    assert (status, told["model"], told["prompt_eval_count"]) == (200, "sim-embed", 3)
    assert told["embeddings"] == [embed("a cat", 4), embed("b", 4)]
    assert told["load_duration"] > 0
    status, told = await post(http, url, "/api/embed", {"model": "sim-embed", "input": []})
    assert (status, told["embeddings"]) == (200, [])
    _, shown = await post(http, url, "/api/show", {"model": "sim-embed"})
    assert shown["capabilities"] == ["embedding"]
    messages = [{"role": "user", "content": "hi"}]
    for path, more in (("/api/generate", {}), ("/api/chat", {"messages": messages})):
        status, told = await post(http, url, path, {"model": "sim-embed", **more})
        assert status == 400
        assert "does not support" in told["error"]
    unload = {"model": "sim-embed", "keep_alive": 0}
    assert (await post(http, url, "/api/generate", unload))[0] == 200


async def test_documents_are_ranked_by_their_words(
    start: Start, http: aiohttp.ClientSession
) -> None:
    url = await start("chat", "sim")
    body = {"query": "red cat", "documents": ["a train", {"text": "the red cat"}], "top_n": 1}
    status, told = await post(http, url, "/v1/rerank", {**body, "return_documents": True})
    assert status == 200
    [best] = told["results"]
    assert (best["index"], best["document"]) == (1, {"text": "the red cat"})
    assert told["usage"]["total_tokens"] == 9
    ollama = await start("ollama", "sim")
    assert (await post(http, ollama, "/v1/rerank", body))[0] == 404


async def test_a_completion_is_16_tokens_long_unless_said(
    start: Start, http: aiohttp.ClientSession
) -> None:
    url = await start("chat", "sim")
    _, told = await post(http, url, "/v1/completions", {"prompt": "count to 100"})
    assert told["choices"][0]["finish_reason"] == "length"
    assert told["usage"]["completion_tokens"] == 16
    _, told = await post(
        http, url, "/v1/completions", {"prompt": "count to 100", "max_tokens": 999}
    )
    assert told["choices"][0]["text"].endswith("99, 100")
