"""Embeddings, legacy completions and reranking as OpenAI, vLLM and Jina serve them, and Ollama's
own embeddings.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import orjson
from aiohttp import web

from router.response.frame import encode_event
from router.simulate.backend import BACKEND, answer, json_answer, new_id, read_fields, stream
from router.simulate.dialogue import (
    Message,
    Options,
    SimulatedAnswer,
    SimulatedRequest,
    count_tokens,
    pieces,
)
from router.simulate.fields import BadRequest, Fields
from router.simulate.logprobs import legacy
from router.simulate.ollama import keep_alive, num_ctx, served_name
from router.simulate.vectors import DIMENSIONS, as_base64, embed, similarity

__all__ = ["completions", "embeddings", "ollama_embed", "rerank"]

_MOST: Final = 2048
_DEFAULT_TOKENS: Final = 16
_MOST_ANSWERS: Final = 128
_DONE: Final = b"data: [DONE]\n\n"
_NANOSECONDS_PER_TOKEN: Final = 10_000_000

Texts = list[str | list[int]]


async def embeddings(request: web.Request) -> web.Response:
    """``POST /v1/embeddings``."""
    fields = await read_fields(request)
    backend = request.app[BACKEND]
    model = backend.resolve(fields.need_string("model"))
    texts = _texts(fields, "input")
    size = _dimensions(fields)
    in_base64 = fields.choice("encoding_format", ("float", "base64")) == "base64"
    await backend.load(request, model)
    vectors = [embed(text, size) for text in texts]
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": as_base64(vector) if in_base64 else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    usage = _input_usage(sum(map(_length, texts)))
    return json_answer({"object": "list", "data": data, "model": model, "usage": usage})


async def ollama_embed(request: web.Request) -> web.Response:
    """``POST /api/embed``: without input, the model is only loaded."""
    fields = await read_fields(request)
    name = fields.need_string("model")
    served = served_name(request, name)
    texts = fields.strings("input")
    size = _dimensions(fields)
    loading = await request.app[BACKEND].load(request, served, keep_alive(fields), num_ctx(fields))
    count = sum(map(count_tokens, texts))
    return json_answer(
        {
            "model": name,
            "embeddings": [embed(text, size) for text in texts],
            "total_duration": int(loading * 1e9) + count * _NANOSECONDS_PER_TOKEN,
            "load_duration": int(loading * 1e9),
            "prompt_eval_count": count,
        }
    )


async def rerank(request: web.Request) -> web.Response:
    """``POST /v1/rerank``: the nearer a document's vector is to the query's, the better."""
    fields = await read_fields(request)
    backend = request.app[BACKEND]
    model = backend.resolve(fields.need_string("model"))
    query = fields.need_string("query")
    documents = [_document(one, place) for place, one in enumerate(fields.items("documents"))]
    if not documents:
        raise fields.missing("documents")
    top = fields.integer("top_n", 1)
    shows = fields.boolean("return_documents")
    wanted = embed(query)
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": similarity(wanted, embed(document))}
        for index, document in enumerate(documents)
    ]
    results.sort(key=lambda one: one["relevance_score"], reverse=True)
    results = results[:top]
    if shows:
        for result in results:
            result["document"] = {"text": documents[result["index"]]}
    tokens = sum(count_tokens(query) + count_tokens(document) for document in documents)
    return json_answer(
        {
            "id": new_id("rerank-"),
            "model": model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "results": results,
        }
    )


async def completions(request: web.Request) -> web.StreamResponse:
    """``POST /v1/completions``, streamed or whole."""
    fields = await read_fields(request)
    backend = request.app[BACKEND]
    model = backend.resolve(fields.need_string("model"))
    prompts = [_as_text(text) for text in _texts(fields, "prompt")]
    limit = fields.integer("max_tokens", 0)
    most = _DEFAULT_TOKENS if limit is None else max(limit, 1)
    options = Options(max_tokens=most, stop=fields.strings("stop"))
    plans = [
        answer(SimulatedRequest(model, (Message("user", text),), options=options))
        for text in prompts
    ]
    told = _CompletionAnswer(model, prompts, plans, fields)
    await backend.load(request, model)
    if not fields.boolean("stream"):
        return json_answer(told.whole())
    wanted = fields.object("stream_options")
    with_usage = wanted is not None and wanted.boolean("include_usage")
    chunks = (encode_event("", orjson.dumps(chunk)) for chunk in told.chunks(with_usage))
    return await stream(request, "text/event-stream; charset=utf-8", chain(chunks, (_DONE,)))


class _CompletionAnswer:
    """Plans as a completion object, or as the chunks that amount to it: ``n`` choices of each."""

    def __init__(
        self, model: str, prompts: list[str], plans: list[SimulatedAnswer], fields: Fields
    ) -> None:
        self._head = {
            "id": new_id("cmpl-"),
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": "fp_simulated",
        }
        n = fields.integer("n", 1) or 1
        if n > _MOST_ANSWERS:
            raise fields.invalid("n", f"at most {_MOST_ANSWERS}")
        echoes = fields.boolean("echo")
        self._choices = [
            ([prompt] * echoes + pieces(plan.text), "length" if plan.finish == "length" else "stop")
            for prompt, plan in zip(prompts, plans, strict=True)
            for _ in range(n)
        ]
        self._top = fields.integer("logprobs", 0)
        output = n * sum(plan.usage.output for plan in plans)
        inputs = sum(map(count_tokens, prompts))
        self._usage = {
            "prompt_tokens": inputs,
            "completion_tokens": output,
            "total_tokens": inputs + output,
        }

    def whole(self) -> dict[str, Any]:
        """The ``text_completion`` object."""
        choices = [
            _choice(index, "".join(said), finish, self._sure(said))
            for index, (said, finish) in enumerate(self._choices)
        ]
        return {**self._head, "choices": choices, "usage": self._usage}

    def _sure(self, said: list[str], start: int = 0) -> dict[str, Any] | None:
        return None if self._top is None else legacy(said, self._top, start)

    def chunks(self, with_usage: bool) -> Iterator[dict[str, Any]]:
        """The same piece by piece; the last has the usage where it was asked for."""
        head = {**self._head, "usage": None} if with_usage else self._head
        for index, (said, finish) in enumerate(self._choices):
            start = 0
            for piece in said:
                yield {**head, "choices": [_choice(index, piece, None, self._sure([piece], start))]}
                start += len(piece)
            yield {**head, "choices": [_choice(index, "", finish)]}
        if with_usage:
            yield {**head, "choices": [], "usage": self._usage}


def _choice(
    index: int, text: str, finish: str | None, sure: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": sure, "finish_reason": finish}


def _texts(fields: Fields, key: str) -> Texts:
    """Texts or tokens, alone or in a batch."""
    value = fields.raw.get(key)
    if isinstance(value, str):
        return [value]
    batch = fields.items(key)
    if not batch:
        raise fields.missing(key)
    if isinstance(batch[0], int):
        batch = [batch]
    if len(batch) > _MOST:
        raise fields.invalid(key, f"a batch of {_MOST} at most")
    if not all(isinstance(one, str) or _are_tokens(one) for one in batch):
        raise fields.wrong(key, "a string, a list of strings, tokens, or a list of tokens")
    return batch


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and all(type(token) is int for token in value)


def _as_text(value: str | list[int]) -> str:
    return value if isinstance(value, str) else " ".join(map(str, value))


def _length(value: str | list[int]) -> int:
    return count_tokens(value) if isinstance(value, str) else len(value)


def _dimensions(fields: Fields) -> int:
    size = fields.integer("dimensions", 1)
    if size is not None and size > DIMENSIONS:
        raise fields.invalid("dimensions", f"{DIMENSIONS} at most")
    return size or DIMENSIONS


def _document(value: Any, place: int) -> str:
    text = value.get("text") if isinstance(value, dict) else value
    if not isinstance(text, str):
        path = f"documents[{place}]"
        raise BadRequest(f"'{path}' must be a text.", param=path, code="invalid_type")
    return text


def _input_usage(count: int) -> dict[str, int]:
    return {"prompt_tokens": count, "total_tokens": count}
