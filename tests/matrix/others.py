"""Embeddings, rerankings and token counts: what each can do, and how that shows."""

from __future__ import annotations

import base64
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final

from router.dialects.dropped import DROPPED_PARAMETERS
from router.simulate.vectors import embed
from tests.files.samples import pdf
from tests.matrix.asking import BODIES, Ask
from tests.matrix.cases import PASSED_ON, YES
from tests.matrix.said import trouble
from tests.matrix.stand import EMBEDDER, MODEL, Stand
from tests.support.router import Reply

__all__ = ["ESTIMATED", "NO_CITATIONS", "NO_FIELD", "OTHERS"]

ESTIMATED: Final = "estimated"
NO_FIELD: Final = "not told"
NO_CITATIONS: Final = "none"

_OPENAI: Final = "/v1/embeddings"
_OLLAMA: Final = "/api/embed"
_OLD: Final = "/api/embeddings"
_TEXTS: Final = ["a red fox", "two blue birds"]
_SMALL: Final = 16
_CHAT: Final = "/v1/chat/completions"
_MESSAGES: Final = "/v1/messages"
_PDF: Final = base64.b64encode(pdf("The sky is blue.")).decode()
_FILE: Final = {"filename": "sky.pdf", "file_data": f"data:application/pdf;base64,{_PDF}"}
_DOCUMENT: Final = {
    "type": "document",
    "title": "sky.pdf",
    "source": {"type": "base64", "media_type": "application/pdf", "data": _PDF},
    "citations": {"enabled": True},
}
_DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "/v1/responses": {"input": [{"role": "user", "content": [{"type": "input_file", **_FILE}]}]},
    _CHAT: {"messages": [{"role": "user", "content": [{"type": "file", "file": _FILE}]}]},
    _MESSAGES: {"max_tokens": 99, "messages": [{"role": "user", "content": [_DOCUMENT]}]},
}
"""Requests with a document that may be cited, by path."""

_RERANKS: Final = ("/v1/rerank", "/rerank", "/v2/rerank")
_COUNTS: Final = {
    "/v1/responses/input_tokens": "Responses",
    "/v1/messages/count_tokens": "Anthropic Messages",
}

Case = Callable[[Stand], Awaitable[str]]
Vectors = list[list[float]]


def _embeds(path: str, wanted: Vectors, **fields: Any) -> Case:
    async def case(stand: Stand) -> str:
        reply = await stand.post(path, {"model": EMBEDDER, **fields})
        if (found := _other(reply)) is not None:
            return found
        assert _vectors(path, reply) == wanted, reply.body[:500]
        return YES

    return case


def _other(reply: Reply) -> str | None:
    """What became of it, where it was not what was asked for."""
    if reply.status != 200:
        return trouble(reply)
    dropped = reply.headers.get(DROPPED_PARAMETERS)
    return f"ignored: {dropped}" if dropped else None


def _vectors(path: str, reply: Reply) -> Vectors:
    if path == _OLD:
        return [reply.json["embedding"]]
    if path == _OLLAMA:
        found: Vectors = reply.json["embeddings"]
        return found
    data = reply.json["data"]
    assert [one["index"] for one in data] == list(range(len(data)))
    return [_unpacked(one["embedding"]) for one in data]


def _unpacked(vector: str | list[float]) -> list[float]:
    if isinstance(vector, list):
        return vector
    packed = base64.b64decode(vector)
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))


def _base64() -> Case:
    """Base64, and not numbers that could be read as well."""
    plain = _embeds(_OPENAI, list(map(embed, _TEXTS)), input=_TEXTS, encoding_format="base64")

    async def case(stand: Stand) -> str:
        found = await plain(stand)
        if found == YES:
            asked = {"model": EMBEDDER, "input": _TEXTS, "encoding_format": "base64"}
            data = (await stand.post(_OPENAI, asked)).json["data"]
            assert all(isinstance(one["embedding"], str) for one in data)
        return found

    return case


def _embed_usage(path: str, field: str) -> Case:
    async def case(stand: Stand) -> str:
        reply = await stand.post(path, {"model": EMBEDDER, field: _TEXTS[0]})
        if (found := _other(reply)) is not None:
            return found
        if path == _OLD:
            assert list(reply.json) == ["embedding"]
            return NO_FIELD
        assert _tokens(reply.json) == _tokens(await stand.again()) > 0
        return YES

    return case


def _tokens(answer: dict[str, Any]) -> int:
    count: int = answer.get("prompt_eval_count") or answer["usage"]["prompt_tokens"]
    return count


def _reranks(path: str, **fields: Any) -> Case:
    documents = ["nothing of it", "the quick brown fox", "a brown fox", "birds"]

    async def case(stand: Stand) -> str:
        asked = {"model": MODEL, "query": "a brown fox", "documents": documents, **fields}
        reply = await stand.post(path, asked)
        if (found := _other(reply)) is not None:
            return found
        results = reply.json["results"]
        assert results[0]["index"] == 2, results
        scores = [one["relevance_score"] for one in results]
        assert scores == sorted(scores, reverse=True)
        assert len(results) == fields.get("top_n", len(documents))
        if fields.get("return_documents"):
            assert results[0]["document"]["text"] == documents[2]
        usage = (await stand.again())["usage"]
        assert reply.json["usage"]["total_tokens"] == usage["total_tokens"] > 0
        return YES

    return case


def _counts(path: str, **asked: Any) -> Case:
    async def case(stand: Stand) -> str:
        body = BODIES[_COUNTS[path]](Ask("What is the weather in Paris?", **asked))
        for name in ("stream", "max_tokens"):
            body.pop(name, None)
        reply = await stand.post(path, body)
        if (found := _other(reply)) is not None:
            return found
        assert reply.json["input_tokens"] > 0
        if reply.headers.get("X-Pointsman-Estimated"):
            return ESTIMATED
        assert reply.json["input_tokens"] == (await stand.again())["input_tokens"]
        return YES

    return case


def _cites(path: str, *, stream: bool) -> Case:
    """An answer that cites a document, which is sent along: it is not cached."""

    async def case(stand: Stand) -> str:
        asked = {"model": MODEL, "stream": stream, **_DOCUMENTS[path]}
        reply = await stand.post_once(path, asked)
        if (found := _other(reply)) is not None:
            return found
        body = reply.body.decode()
        if stand.column != "messages":
            assert "_citation" not in body
            return NO_CITATIONS
        assert stand.received[-1][1]["messages"][0]["content"][0]["citations"] == {"enabled": True}
        if path == _MESSAGES:
            assert body.count('"document_title":"sky.pdf"') == 1, body
            return PASSED_ON
        if path == _CHAT:
            assert "sky.pdf" not in body
            return NO_FIELD
        assert body.count('"filename":"sky.pdf"') == (4 if stream else 1), body
        assert body.count('"annotation":{"type":"file_citation"') == stream, body
        return YES

    return case


def _of_embeddings() -> dict[str, dict[str, Case]]:
    one, all_ = [embed(_TEXTS[0])], list(map(embed, _TEXTS))
    cut = [embed(_TEXTS[0], _SMALL)]
    made: dict[str, dict[str, Case]] = {}
    for path, field in ((_OPENAI, "input"), (_OLLAMA, "input"), (_OLD, "prompt")):
        text = {field: _TEXTS[0]}
        made[path] = {
            "text": _embeds(path, one, **text),
            "batch": _embeds(path, all_, **{field: _TEXTS}),
            "base64": _embeds(path, one, encoding_format="base64", **text),
            "dimensions": _embeds(path, cut, dimensions=_SMALL, **text),
            "usage": _embed_usage(path, field),
        }
    made[_OPENAI]["base64"] = _base64()
    return made


OTHERS: Final[dict[str, dict[str, dict[str, Case]]]] = {
    "Embeddings": _of_embeddings(),
    "Rerank": {
        path: {
            "order": _reranks(path),
            "top_n": _reranks(path, top_n=2),
            "documents": _reranks(path, return_documents=True),
        }
        for path in _RERANKS
    },
    "Citations of documents": {
        path: {
            "whole": _cites(path, stream=False),
            "streamed": _cites(path, stream=True),
        }
        for path in _DOCUMENTS
    },
    "Token counting": {
        path: {
            "text": _counts(path),
            "tools": _counts(path, tools=True),
            "images": _counts(path, image=True),
        }
        for path in _COUNTS
    },
}
"""Tables: paths, their features, and what tries them."""
