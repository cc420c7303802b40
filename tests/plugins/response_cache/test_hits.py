"""A request that was answered before is answered again without anybody being asked."""

from __future__ import annotations

from typing import Any

import pytest

from router.settings.schema import Dialect
from tests.plugins.response_cache.conftest import caching, streams, wholes
from tests.support.router import Reply
from tests.support.speech import SPEECH, Speech
from tests.support.sse import check_responses_stream, text_of
from tests.support.upstream import Upstream, streamed, whole


def content(response: dict[str, Any]) -> Any:
    """What an answer says, without ids and times."""
    items = [{**item, "id": None} for item in response["output"]]
    ours = ("id", "created_at", "completed_at", "output", "store", "metadata")
    return items, {k: v for k, v in response.items() if k not in ours}


async def test_a_body_is_given_again(dialect: Dialect, speech: Speech) -> None:
    async with wholes(speech) as upstream, caching(upstream, dialect) as router:
        first = await router.ask(store=False)
        second = await router.ask(store=False)
        assert len(upstream.requests) == 1
    assert first.headers["X-Cache"] == "MISS"
    assert (second.headers["X-Cache"], second.headers["X-Cache-Tier"]) == ("HIT", "exact")
    assert int(second.headers["Age"]) >= 0
    assert "X-Pointsman-Endpoint" not in second.headers
    assert content(first.json) == content(second.json)
    assert first.json["id"] != second.json["id"]
    assert first.json["output"][0]["id"] != second.json["output"][0]["id"]


async def test_a_stream_is_given_again(dialect: Dialect, speech: Speech) -> None:
    async with streams(speech) as upstream, caching(upstream, dialect) as router:
        first = await router.ask(stream=True, store=False)
        second = await router.ask(stream=True, store=False)
        assert len(upstream.requests) == 1
    assert second.headers["X-Cache"] == "HIT"
    finals = [check_responses_stream(reply.events) for reply in (first, second)]
    assert content(finals[0]) == content(finals[1])
    assert finals[0]["id"] != finals[1]["id"]
    assert text_of(second.events) == speech.text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_form_of_the_first_request_does_not_matter(
    dialect: Dialect, speech: Speech, stream: bool
) -> None:
    script = streamed(*speech.pieces, kind=speech.kind) if stream else whole(speech.whole)
    async with Upstream(script) as upstream, caching(upstream, dialect) as router:
        await router.ask(stream=stream, store=False)
        streamed_again = await router.ask(stream=True)
        whole_again = await router.ask()
    final = check_responses_stream(streamed_again.events)
    assert final["output"][0]["content"][0]["text"] == speech.text
    assert whole_again.json["output"][0]["content"][0]["text"] == speech.text
    assert whole_again.headers["X-Cache"] == streamed_again.headers["X-Cache"] == "HIT"


@pytest.mark.parametrize("dialect", ["responses", "chat"])
@pytest.mark.parametrize("chat", [False, True], ids=["responses", "chat"])
async def test_the_two_apis_share_their_answers(dialect: Dialect, chat: bool) -> None:
    speech = SPEECH["chat" if chat else dialect]
    async with wholes(speech) as upstream, caching(upstream, dialect) as router:
        await router.ask(chat=chat)
        other = await router.ask(chat=not chat)
        other_stream = await router.ask(chat=not chat, stream=True)
        assert len(upstream.requests) == 1
    assert other.headers["X-Cache"] == other_stream.headers["X-Cache"] == "HIT"
    if chat:
        assert other.json["output_text"] == speech.text
        assert text_of(other_stream.events) == speech.text
    else:
        assert other.json["choices"][0]["message"]["content"] == speech.text
        assert _chat_text(other_stream) == speech.text


@pytest.mark.parametrize("dialect", ["responses", "chat"])
async def test_chat_streams_are_given_again(dialect: Dialect) -> None:
    speech = SPEECH["chat"]
    async with streams(speech) as upstream, caching(upstream, dialect) as router:
        options = {"include_usage": True}
        first = await router.ask(chat=True, stream=True)
        second = await router.ask(chat=True, stream=True, stream_options=options)
        assert len(upstream.requests) == 1
    assert _chat_text(first) == _chat_text(second) == speech.text
    assert all(e.data is None or e.data["choices"] for e in first.events)
    last, done = second.events[-2:]
    assert (last.json["choices"], last.json["usage"]["total_tokens"]) == ([], 11)
    assert done.raw == b"[DONE]"
    ids = [{e.data["id"] for e in reply.events if e.data} for reply in (first, second)]
    assert len(ids[0]) == len(ids[1]) == 1
    assert ids[0] != ids[1]


async def test_a_hit_is_stored_and_can_be_continued() -> None:
    speech = SPEECH["responses"]
    async with wholes(speech) as upstream, caching(upstream) as router:
        await router.ask(store=False)
        for stream in (False, True):
            hit = await router.ask(stream=stream, metadata={"mine": "yes"})
            assert hit.headers["X-Cache"] == "HIT"
            final = hit.json if not stream else check_responses_stream(hit.events)
            url = f"{router.url}/v1/responses/{final['id']}"
            async with router.http.get(url) as response:
                kept = await response.json()
            assert kept == final
            assert (kept["store"], kept["metadata"]) == (True, {"mine": "yes"})
            follow = await router.ask(input="and then?", previous_response_id=final["id"])
            assert follow.headers["X-Cache"] == "BYPASS"
            assert follow.headers["X-Cache-Reason"] == "state"
            sent = upstream.requests[-1].json["input"]
            assert [item["role"] for item in sent] == ["user", "assistant", "user"]
            async with router.http.delete(url) as response:
                assert response.status == 200
        assert len(upstream.requests) == 3


async def test_keys_do_not_see_each_others_answers() -> None:
    keys = [{"name": name, "key": f"key-of-{name}"} for name in ("a", "b")]
    speech = SPEECH["responses"]
    for scope, calls in (("key", 2), ("shared", 1)):
        cache = {"mode": "always", "scope": scope}
        async with (
            wholes(speech) as upstream,
            caching(upstream, auth={"keys": keys}, cache=cache) as router,
        ):
            for name in ("a", "b", "a"):
                router.http.headers["Authorization"] = f"Bearer key-of-{name}"
                await router.ask(store=False)
            assert len(upstream.requests) == calls


@pytest.mark.parametrize(
    "answer",
    [
        b'{"id":"r","object":"response","status":"incomplete","incomplete_details":'
        b'{"reason":"max_output_tokens"},"output":[{"type":"message","id":"msg_1","role":'
        b'"assistant","status":"incomplete","content":[{"type":"output_text","text":"Hel",'
        b'"annotations":[]}]}],"usage":null}',
        b'{"id":"r","object":"response","status":"failed","error":{"code":"invalid_prompt",'
        b'"message":"no"},"output":[]}',
    ],
    ids=["incomplete", "failed"],
)
async def test_what_is_not_complete_is_not_kept(answer: bytes) -> None:
    async with Upstream(default=whole(answer)) as upstream, caching(upstream) as router:
        for _ in range(2):
            assert (await router.ask(store=False)).headers["X-Cache"] == "MISS"
        assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tools": [{"type": "web_search"}]}, "server_tools"),
        ({"background": True}, None),
    ],
)
async def test_what_passes_it_by(fields: dict[str, Any], reason: str | None) -> None:
    speech = SPEECH["responses"]
    async with wholes(speech) as upstream, caching(upstream) as router:
        reply = await router.ask(**fields)
        assert reply.status == 200
        assert reply.headers.get("X-Cache-Reason") == reason


async def test_an_answer_of_another_model_is_kept_under_that_model() -> None:
    speech = SPEECH["responses"]
    fallbacks = {"gone": ["m"]}
    async with wholes(speech) as upstream, caching(upstream, fallbacks=fallbacks) as router:
        first = await router.ask(model="gone", store=False)
        assert first.headers["X-Pointsman-Fallback"] == "m"
        again = await router.ask(model="gone", store=False)
        assert again.headers["X-Cache"] == "MISS"
        straight = await router.ask(store=False)
        assert straight.headers["X-Cache"] == "HIT"
        assert len(upstream.requests) == 2


async def test_the_metrics_tell() -> None:
    speech = SPEECH["responses"]
    async with wholes(speech) as upstream, caching(upstream) as router:
        for _ in range(3):
            await router.ask(store=False)
        assert await router.metric("pointsman_cache_lookups_total", result="hit") == [2]
        assert await router.metric("pointsman_cache_lookups_total", result="miss") == [1]
        assert sum(await router.metric("pointsman_cache_saved_tokens_total")) == 22
        assert await router.metric("pointsman_cache_store_up") == [1]
        assert sum(await router.metric("pointsman_tokens_total", kind="input")) == 7


def _chat_text(reply: Reply) -> str:
    return "".join(
        event.data["choices"][0]["delta"].get("content") or ""
        for event in reply.events
        if event.data and event.data["choices"]
    )


def test_what_is_told_again_is_no_more_than_what_is_kept() -> None:
    from cache import request
    from router.response import replay

    assert request._OWN - {"model"} <= replay._NOT_RETOLD
