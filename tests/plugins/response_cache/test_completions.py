"""Legacy completions from the cache: whole, streamed, and shared."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from tests.plugins.response_cache.conftest import caching
from tests.support.admin import ADMIN, call_admin
from tests.support.dialects import dialect, speech
from tests.support.plain import post
from tests.support.router import Reply
from tests.support.upstream import Upstream, Wire, streamed, whole, whole_or_streamed
from tests.support.waiting import until

__all__ = ["dialect", "speech"]

PATH = "/v1/completions"
TEXTS = ["Once", " upon", " a time."]
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
HEAD = {"id": "cmpl-upstream-1", "object": "text_completion", "created": 1, "model": "m"}


def choice(text: str, finish: str | None = "stop", index: int = 0) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish}


def body(*choices: dict[str, Any]) -> bytes:
    return orjson.dumps({**HEAD, "choices": choices, "usage": USAGE})


def events(finish: str | None = "stop") -> bytes:
    parts = [choice(text, None) for text in TEXTS] + [choice("", finish)]
    chunks: list[dict[str, Any]] = [{**HEAD, "choices": [part]} for part in parts]
    chunks.append({**HEAD, "choices": [], "usage": USAGE})
    return b"".join(b"data: %b\n\n" % orjson.dumps(c) for c in chunks) + b"data: [DONE]\n\n"


def answering(finish: str | None = "stop") -> Upstream:
    """An endpoint that says the same whole or streamed, as it is asked to."""
    whole_answer = whole(body(choice("".join(TEXTS), finish)))
    return Upstream(default=whole_or_streamed(whole_answer, streamed(events(finish))))


def said(reply: Reply, *, stream: bool) -> tuple[str, str, str | None, Any]:
    """Text, id, reason to stop and usage; a stream ends with ``[DONE]``."""
    assert reply.status == 200, reply.body
    if not stream:
        [only] = reply.json["choices"]
        return only["text"], reply.json["id"], only["finish_reason"], reply.json["usage"]
    *chunks, done = reply.events
    assert done.raw == b"[DONE]"
    told = [chunk.data or {} for chunk in chunks]
    [ident] = {chunk["id"] for chunk in told}
    parts = [part for chunk in told for part in chunk["choices"]]
    usage = next((chunk["usage"] for chunk in told if chunk.get("usage")), None)
    return "".join(p["text"] for p in parts), ident, parts[-1]["finish_reason"], usage


@pytest.mark.parametrize("dialect", ["responses", "chat", "ollama"])
@pytest.mark.parametrize("first", [False, True], ids=["whole first", "stream first"])
async def test_it_is_answered_again_whole_and_streamed(dialect: Dialect, *, first: bool) -> None:
    async with answering() as upstream, caching(upstream, dialect) as router:
        ids = set()
        for number, stream in enumerate((first, False, True)):
            prompt: Any = ["hi"] if number == 1 else "hi"
            fields = {"stream": stream, "prompt": prompt, "user": str(number), "n": 1}
            reply = await post(router, PATH, **fields)
            assert reply.headers["X-Cache"] == ("HIT" if number else "MISS")
            text, ident, reason, usage = said(reply, stream=stream)
            assert (text, reason) == ("".join(TEXTS), "stop")
            assert usage == (None if stream else USAGE)
            ids.add(ident)
        wants = await post(router, PATH, stream=True, stream_options={"include_usage": True})
        assert said(wants, stream=True)[3] == USAGE
        assert len(ids) == 3
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "fields",
    [{"prompt": "ho"}, {"prompt": ["hi", "hi"]}, {"max_tokens": 5}, {"echo": True}, {"seed": 1}],
    ids=str,
)
async def test_what_asks_for_something_else_is_asked(fields: dict[str, Any]) -> None:
    async with answering() as upstream, caching(upstream, "chat") as router:
        await post(router, PATH)
        assert (await post(router, PATH, **fields)).headers["X-Cache"] == "MISS"
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_what_was_cut_off_is_not_kept(*, stream: bool) -> None:
    async with answering("length") as upstream, caching(upstream, "chat") as router:
        for _ in range(2):
            assert (await post(router, PATH, stream=stream)).headers["X-Cache"] == "MISS"
        assert len(upstream.requests) == 2
        several = await post(router, PATH, n=2)
        assert several.headers["X-Cache-Reason"] == "several_choices"


async def test_the_same_at_the_same_time_is_one_call() -> None:
    go = asyncio.Event()
    async with answering() as upstream, caching(upstream, "chat") as router:
        script = upstream.default

        async def held(wire: Wire) -> None:
            await go.wait()
            assert script is not None
            await script(wire)

        upstream.default = held
        forms = [n % 2 == 1 for n in range(20)]
        tasks = [asyncio.create_task(post(router, PATH, stream=stream)) for stream in forms]
        await until(lambda: router.running == len(tasks) and upstream.requests)
        go.set()
        replies = await asyncio.gather(*tasks)
        assert len(upstream.requests) == 1
    told = [said(reply, stream=stream) for reply, stream in zip(replies, forms, strict=True)]
    assert {text for text, *_ in told} == {"".join(TEXTS)}


async def test_log_probabilities_and_several_prompts_come_back() -> None:
    logprobs = {"tokens": ["a", "b"], "token_logprobs": [-1, -2], "text_offset": [0, 1]}
    choices = [{**choice("ab"), "logprobs": logprobs}, choice("c", index=1)]
    async with Upstream(whole(body(*choices))) as upstream, caching(upstream, "chat") as router:
        fields: dict[str, Any] = {"prompt": ["x", "y"], "logprobs": 0}
        first = await post(router, PATH, **fields)
        again = await post(router, PATH, **fields)
        assert again.headers["X-Cache"] == "HIT"
        assert again.json["choices"] == first.json["choices"]
        stream = await post(router, PATH, stream=True, **fields)
        parts = [p for e in stream.events if e.data for p in e.data["choices"]]
        assert [p["text"] for p in parts if p["index"] == 1] == ["c"]
        assert [p["logprobs"] for p in parts if p["index"] == 0] == [logprobs]
        assert len(upstream.requests) == 1


async def test_what_would_be_answered_is_told() -> None:
    async with answering() as upstream, caching(upstream, "chat", admin=ADMIN) as router:
        await post(router, PATH)
        asked = {"request": {"model": "m", "prompt": "hi"}}
        found = (await call_admin(router, "POST", "/cache/lookup", asked)).json
        assert (found["cacheable"], found["tier"]) == (True, "exact")
        assert found["entry"]["answer"]["body"]["choices"][0]["text"] == "".join(TEXTS)
