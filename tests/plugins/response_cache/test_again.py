"""What is asked again in the same bytes is told as it was before, and by the same rules."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
import pytest

from plugins.response_cache.again import Template
from router.app import DISPATCHER
from router.core.known_requests import KnownRequests
from router.core.usage_record import Kind
from tests.plugins.response_cache.conftest import caching, streams, wholes
from tests.plugins.response_cache.test_faults_sharing import plugin_of
from tests.plugins.response_cache.test_hits import content
from tests.support.admin import ADMIN, call_admin
from tests.support.redis import redis_server
from tests.support.reloading import reload
from tests.support.router import Reply, Router, endpoint
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream, text_of
from tests.support.upstream import Upstream, Wire, whole
from tests.support.waiting import until

SPEECH_OF_IT = SPEECH["responses"]


def known(router: Router) -> KnownRequests:
    """The requests that the router has remembered."""
    requests = router.app[DISPATCHER]._plugin_sets.current.chain.known
    assert requests is not None
    return requests


async def hits(router: Router, count: int = 4, **fields: Any) -> list[Reply]:
    """The same request so many times after a first one; each of them is a hit."""
    await router.ask(**fields)
    await until(lambda: not len(plugin_of(router)._tasks))  # it has been put away
    replies = [await router.ask(**fields) for _ in range(count)]
    assert {reply.headers["X-Cache"] for reply in replies} == {"HIT"}
    assert {reply.headers["X-Cache-Tier"] for reply in replies} == {"exact"}
    assert all(int(reply.headers["Age"]) >= 0 for reply in replies)
    assert len({reply.headers["X-Cache-Entry"] for reply in replies}) == 1
    assert len(known(router)) == 1
    return replies


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_all_say_the_same_under_ids_of_their_own(stream: bool) -> None:
    make = streams if stream else wholes
    async with make(SPEECH_OF_IT) as upstream, caching(upstream) as router:
        # A sign of formatting is text like any other, and so is what looks like a time.
        odd = '100 %b of "created_at":1 %(x)s %%'
        replies = await hits(router, store=False, stream=stream, instructions=odd)
        assert len(upstream.requests) == 1
    finals = [check_responses_stream(reply.events) if stream else reply.json for reply in replies]
    assert {final["instructions"] for final in finals} == {odd}
    if stream:
        assert {text_of(reply.events) for reply in replies} == {SPEECH_OF_IT.text}
    assert all(content(final) == content(finals[0]) for final in finals)
    for ids in ([f["id"] for f in finals], [f["output"][0]["id"] for f in finals]):
        assert len(set(ids)) == len(finals)
        assert len({len(ident) for ident in ids}) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_chats_too(stream: bool) -> None:
    speech = SPEECH["chat"]
    make = streams if stream else wholes
    async with make(speech) as upstream, caching(upstream, "chat") as router:
        replies = await hits(router, chat=True, stream=stream)
        assert len(upstream.requests) == 1
    if stream:
        ids = [{e.data["id"] for e in reply.events if e.data} for reply in replies]
        assert all(reply.events[-1].raw == b"[DONE]" for reply in replies)
        assert all(len(each) == 1 for each in ids)
    else:
        ids = [{reply.json["id"]} for reply in replies]
        texts = {reply.json["choices"][0]["message"]["content"] for reply in replies}
        assert texts == {speech.text}
    assert len(set.union(*ids)) == len(replies)


async def test_each_is_counted_and_has_a_row() -> None:
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream) as router:
        replies = await hits(router, store=False)
        rows = [row for row in router.rows if row.kind is Kind.CACHE]
        assert [row.response for row in rows] == [reply.json["id"] for reply in replies]
        assert len({row.id for row in rows}) == len(rows)
        assert len({row.tokens for row in rows}) == 1
        await router.metric_becomes(4, "pointsman_cache_lookups_total", result="hit")
        [saved] = await router.metric("pointsman_cache_saved_tokens_total", kind="output")
        assert saved == 4 * rows[0].tokens.output


@pytest.mark.parametrize("kind", ["memory", "disk", "redis"])
async def test_what_is_invalidated_is_not_told_again(kind: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        url = f"disk://{tmp_path}/cache" if kind == "disk" else "memory://"
        if kind == "redis":
            url = stack.enter_context(redis_server()).url
        await _invalidated(url)


async def _invalidated(url: str) -> None:
    cache = {"mode": "always", "store": url}
    async with (
        wholes(SPEECH_OF_IT) as upstream,
        caching(upstream, cache=cache, admin=ADMIN) as router,
    ):
        for calls in (1, 2, 3):
            await hits(router, store=False)
            assert len(upstream.requests) == calls
            reply = await call_admin(router, "POST", "/cache/invalidate", {"all": True})
            assert reply.status == 200
        sent = [request.json for request in upstream.requests]
        assert sent[0] == sent[1] == sent[2]


async def test_what_has_expired_is_asked_anew() -> None:
    cache = {"mode": "always", "ttl": 1}
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream, cache=cache) as router:
        await hits(router, count=2, store=False)
        reply = await router.ask(store=False)
        while reply.headers["X-Cache"] == "HIT":
            reply = await router.ask(store=False)
        assert (reply.headers["X-Cache"], len(upstream.requests)) == ("MISS", 2)


async def test_what_a_header_says_counts_each_time() -> None:
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream) as router:
        await hits(router, store=False)
        for asked, expected in (
            ("no-cache, no-store", "BYPASS"),
            ("max-age=0", "MISS"),
            ("only-if-cached", "HIT"),
            ("max-age=60", "HIT"),
        ):
            router.http.headers["Cache-Control"] = asked
            assert (await router.ask(store=False)).headers["X-Cache"] == expected
        assert len(upstream.requests) == 3


async def test_a_key_is_not_answered_with_what_another_is_known_by() -> None:
    keys = [{"name": name, "key": f"key-of-{name}"} for name in ("a", "b")]
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream, auth={"keys": keys}) as router:
        for name, expected in (("a", "HIT"), ("b", "MISS")):
            for _ in range(3):
                router.http.headers["Authorization"] = "Bearer key-of-a"
                await router.ask(store=False)
            router.http.headers["Authorization"] = f"Bearer key-of-{name}"
            assert (await router.ask(store=False)).headers["X-Cache"] == expected
        assert len(upstream.requests) == 2


async def test_one_that_is_to_be_stored_is_stored_each_time() -> None:
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream) as router:
        await router.ask()
        for _ in range(3):
            hit = await router.ask()
            assert hit.headers["X-Cache"] == "HIT"
            async with router.http.get(f"{router.url}/v1/responses/{hit.json['id']}") as found:
                assert await found.json() == hit.json
        assert len(known(router)) == 0


async def test_a_request_that_names_no_model_is_read_each_time() -> None:
    async with (
        wholes(SPEECH_OF_IT) as upstream,
        caching(upstream, default_model="m") as router,
    ):
        for expected in ("MISS", "HIT", "HIT"):
            url, body = f"{router.url}/v1/responses", {"input": "hi", "store": False}
            async with router.http.post(url, json=body) as response:
                assert response.headers["X-Cache"] == expected
        assert len(known(router)) == 0


async def test_nothing_is_known_under_another_configuration() -> None:
    async with wholes(SPEECH_OF_IT) as upstream, caching(upstream) as router:
        await hits(router, store=False)
        one = endpoint(upstream, "responses")
        await reload(router, one, cache={"mode": "always", "scope": "shared"})
        assert len(known(router)) == 0
        assert (await router.ask(store=False)).headers["X-Cache"] == "MISS"


class _Rendered:
    """What a template has to know of what was told."""

    ids = ("resp_1a", "msg_2b")
    times = MappingProxyType({"created_at": 1700000000})

    def renew(self) -> Any:
        return lambda: ["resp_3c", "msg_4d"]


def test_a_template_leaves_places_for_ids_and_times_only() -> None:
    told = {
        "id": "resp_1a",
        "created_at": 1700000000,
        "items": ["msg_2b", "%b", "1700000000", "msg_2b"],
    }
    template = Template.of(orjson.dumps(told), _Rendered())  # type: ignore[arg-type]
    assert template is not None
    filled, ident = template.fill()
    again = orjson.loads(filled)
    assert (again["id"], ident) == ("resp_3c", "resp_3c")
    assert again["created_at"] > 1700000000
    assert again["items"] == ["msg_4d", "%b", "1700000000", "msg_4d"]


@pytest.mark.parametrize(
    "told",
    [
        b'{"id":"resp_1a","created_at":1700000000}',
        b'{"id":"resp_1a","created_at":1700000001,"item":"msg_2b"}',
        b'{"id":"resp_1a","created_at":1700000000,"item":"msg_2b","text":"\0"}',
        b'{"id":"resp_1a","created_at":1700000000,"item":"msg_2b"}' + b" " * 65_536,
    ],
    ids=["an id is missing", "a time is missing", "no JSON", "too large"],
)
def test_what_cannot_be_told_again_has_no_template(told: bytes) -> None:
    assert Template.of(told, _Rendered()) is None  # type: ignore[arg-type]


async def test_the_bytes_of_a_request_are_not_held_while_an_endpoint_answers() -> None:
    release, answer = asyncio.Event(), whole(SPEECH_OF_IT.whole)

    async def held(wire: Wire) -> None:
        await release.wait()
        await answer(wire)

    async with Upstream(held) as upstream, caching(upstream) as router:
        waiting = asyncio.create_task(router.ask(store=False))
        await until(lambda: len(upstream.requests) == 1)
        [exchange] = router.app[DISPATCHER]._running.values()
        assert exchange.known is None
        release.set()
        assert (await waiting).headers["X-Cache"] == "MISS"
