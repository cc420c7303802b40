"""Stored responses and chains of them, over both databases and every dialect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.settings.schema import Dialect
from tests.support.calling import answering, call, said
from tests.support.router import Router, endpoint, routing
from tests.support.upstream import Upstream

HELLO = "Hello, wörld!"


@pytest.mark.parametrize("stream", [False, True])
async def test_what_was_answered_is_what_is_stored(router: Router, stream: bool) -> None:
    reply = await router.ask(stream=stream, metadata={"a": "b"})
    answer = reply.events[-1].response if stream else reply.json
    assert answer["store"] is True
    stored = await call(router, "GET", f"/responses/{answer['id']}")
    assert stored.status == 200
    assert stored.headers["Content-Type"] == "application/json"
    assert stored.json == answer


@pytest.mark.parametrize("stream", [False, True])
async def test_store_false_leaves_nothing(router: Router, stream: bool) -> None:
    reply = await router.ask(stream=stream, store=False)
    answer = reply.events[-1].response if stream else reply.json
    assert answer["store"] is False
    for method, path in (
        ("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")
    ):  # fmt: skip
        reply = await call(router, method, f"/responses/{answer['id']}{path}")
        assert (reply.status, reply.error["type"]) == (404, "invalid_request_error")
        assert "not found" in reply.error["message"]
    reply = await router.ask(previous_response_id=answer["id"])
    assert (reply.status, reply.error["code"]) == (400, "previous_response_not_found")
    assert reply.error["param"] == "previous_response_id"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chain_goes_up_whole_and_without_ids(
    router: Router, upstream: Upstream, stream: bool
) -> None:
    one = (await router.ask(input="one", instructions="first only")).json
    two = (await router.ask(input="two", previous_response_id=one["id"])).json
    reply = await router.ask(
        input=[{"role": "user", "content": "three"}],
        previous_response_id=two["id"],
        stream=stream,
    )
    three = reply.events[-1].response if stream else reply.json
    assert three["previous_response_id"] == two["id"]
    assert said(upstream) == [
        ("user", "one"), ("assistant", HELLO), ("user", "two"), ("assistant", HELLO),
        ("user", "three"),
    ]  # fmt: skip
    body = upstream.requests[-1].json
    assert not [item for item in body.get("input", ()) if "id" in item]
    assert "previous_response_id" not in body
    assert body.get("store", False) is False


async def test_input_items_are_the_requests_own_in_pages(router: Router) -> None:
    one = (await router.ask(input="before")).json
    asked = [{"role": "user", "content": f"n{i}"} for i in range(5)]
    two = (await router.ask(input=asked, previous_response_id=one["id"])).json
    path = f"/responses/{two['id']}/input_items"
    every = (await call(router, "GET", path, params={"order": "asc"})).json
    assert [item["content"][0]["text"] for item in every["data"]] == [f"n{i}" for i in range(5)]
    assert every["has_more"] is False
    newest = (await call(router, "GET", path, params={"limit": 2})).json
    assert newest["data"] == [every["data"][4], every["data"][3]]
    assert newest["has_more"] is True
    more = (await call(router, "GET", path, params={"limit": 9, "after": newest["last_id"]})).json
    assert more["data"] == [every["data"][i] for i in (2, 1, 0)]
    for query, param in (({"limit": 0}, "limit"), ({"order": "up"}, "order")):
        reply = await call(router, "GET", path, params=query)
        assert (reply.status, reply.error["param"]) == (400, param)


async def test_deleting_in_mid_chain_leaves_the_neighbours(
    router: Router, upstream: Upstream
) -> None:
    one = (await router.ask(input="one")).json
    two = (await router.ask(input="two", previous_response_id=one["id"])).json
    three = (await router.ask(input="three", previous_response_id=two["id"])).json
    gone = await call(router, "DELETE", f"/responses/{two['id']}")
    assert gone.json == {"id": two["id"], "object": "response", "deleted": True}
    assert (await call(router, "DELETE", f"/responses/{two['id']}")).status == 404
    for response in (one, three):
        assert (await call(router, "GET", f"/responses/{response['id']}")).json == response
    await router.ask(input="four", previous_response_id=three["id"])
    assert said(upstream) == [
        ("user", "one"), ("assistant", HELLO), ("user", "three"), ("assistant", HELLO),
        ("user", "four"),
    ]  # fmt: skip


async def test_two_branches_of_one_chain(router: Router, upstream: Upstream) -> None:
    root = (await router.ask(input="root")).json
    left, right = await asyncio.gather(
        *(router.ask(input=side, previous_response_id=root["id"]) for side in ("left", "right"))
    )
    await router.ask(input="leaf", previous_response_id=right.json["id"])
    assert [text for role, text in said(upstream) if role == "user"] == ["root", "right", "leaf"]
    assert left.json["id"] != right.json["id"]


async def test_an_item_can_be_referred_to(router: Router, upstream: Upstream) -> None:
    one = (await router.ask(input="remember me")).json
    items = (await call(router, "GET", f"/responses/{one['id']}/input_items")).json["data"]
    asked: list[dict[str, Any]] = [
        {"type": "item_reference", "id": items[0]["id"]},
        {"id": one["output"][0]["id"]},
        {"role": "user", "content": "go on"},
    ]
    reply = await router.ask(input=asked, store=False)
    assert reply.status == 200
    assert said(upstream) == [("user", "remember me"), ("assistant", HELLO), ("user", "go on")]
    reply = await router.ask(input=[{"type": "item_reference", "id": "msg_none"}, asked[2]])
    assert (reply.status, reply.error["param"]) == (404, "input[0]")
    assert "msg_none" in reply.error["message"]


async def test_other_owners_objects_do_not_exist(database_url: str, dialect: Dialect) -> None:
    keys = {"keys": [{"name": "team-a", "key": "sk-a"}, {"name": "team-b", "key": "sk-b"}]}
    async with (
        answering(dialect) as upstream,
        routing(endpoint(upstream, dialect), auth=keys, state={"url": database_url}) as router,
    ):
        ask = {"model": "m", "input": "secret"}
        mine = (await call(router, "POST", "/responses", ask, key="sk-a")).json
        path = f"/responses/{mine['id']}"
        for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/input_items")):
            assert (await call(router, method, path + tail, key="sk-b")).status == 404
        follow = {**ask, "previous_response_id": mine["id"]}
        reply = await call(router, "POST", "/responses", follow, key="sk-b")
        assert reply.error["code"] == "previous_response_not_found"
        refer = {**ask, "input": [{"type": "item_reference", "id": mine["output"][0]["id"]}]}
        assert (await call(router, "POST", "/responses", refer, key="sk-b")).status == 404
        assert (await call(router, "GET", path, key="sk-a")).json == mine
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("ident", ["resp_nul%00", "resp_" + "x" * 5000, "..%2f", "ünïcode", "'--"])
async def test_ids_from_anywhere_are_not_found(router: Router, ident: str) -> None:
    for method, tail in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        reply = await call(router, method, f"/responses/{ident}{tail}")
        assert reply.status == 404
        assert len(reply.error["message"]) < 500


async def test_counting_tokens_looks_at_the_history(router: Router, upstream: Upstream) -> None:
    one = (await router.ask(input="many words " * 100)).json
    ask = {"model": "m", "input": "short"}
    alone = await call(router, "POST", "/responses/input_tokens", ask)
    assert alone.status == 200
    chained = {**ask, "previous_response_id": one["id"]}
    asked = len(upstream.requests)
    counted = await call(router, "POST", "/responses/input_tokens", chained)
    assert counted.status == 200
    if len(upstream.requests) > asked:  # the endpoint counts: it was shown the history
        assert ("assistant", HELLO) in said(upstream)
    else:
        assert counted.json["input_tokens"] > alone.json["input_tokens"] + 100
