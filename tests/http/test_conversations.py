"""Conversations over HTTP, on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from router.http.conversations import ConversationsApi
from router.state.conversations import ConversationStore
from router.state.database import Database
from router.state.responses import ResponseStore, StoredResponse
from tests.support.mounted import Mounted, mounted
from tests.support.router import Reply
from tests.support.schema import faults
from tests.support.state import database, database_url

__all__ = ["database", "database_url"]


@pytest.fixture
async def api(database: Database) -> AsyncIterator[Mounted]:
    conversations = ConversationStore(database)
    find_items = ResponseStore(database).find_items
    async with mounted(lambda f: ConversationsApi(f, conversations, find_items).routes()) as api:
        yield api


def user(text: str, **fields: Any) -> dict[str, Any]:
    part = {"type": "input_text", "text": text}
    return {"type": "message", "role": "user", "content": [part], **fields}


async def create(api: Mounted, *texts: str, owner: str = "alice", **fields: Any) -> str:
    """A conversation with these messages; its id."""
    body = {"items": [user(text) for text in texts], **fields}
    reply = await api.call("POST", "/conversations", body, owner=owner)
    assert reply.status == 200, reply.body
    ident: str = reply.json["id"]
    return ident


async def items(api: Mounted, ident: str, **query: Any) -> dict[str, Any]:
    """A page of items in ascending order, valid by OpenAI's schema."""
    params = {"order": "asc", **query}
    reply = await api.call("GET", f"/conversations/{ident}/items", params=params)
    assert reply.status == 200, reply.body
    if reply.json["data"]:
        assert faults("ConversationItemList", reply.json) == []
    return reply.json


def texts(page: dict[str, Any]) -> list[str]:
    return [item["content"][0]["text"] for item in page["data"]]


def check_error(reply: Reply, status: int, param: str | None = None, contains: str = "") -> None:
    assert (reply.status, reply.error["param"]) == (status, param), reply.body
    assert reply.error["type"] == "invalid_request_error"
    assert contains in reply.error["message"]
    assert len(reply.error["message"]) < 700  # a list of what is supported is long


def check_missing(reply: Reply, what: str = "Conversation") -> None:
    check_error(reply, 404, None, f"{what} with id '")
    assert reply.error["code"] is None
    assert "not found" in reply.error["message"]


async def test_the_life_of_a_conversation(api: Mounted) -> None:
    made = (await api.call("POST", "/conversations", {"metadata": {"topic": "demo"}})).json
    path = f"/conversations/{made['id']}"
    assert made["id"].startswith("conv_")
    assert faults("ConversationResource", made) == []
    assert (await api.call("GET", path)).json == made
    metadata = {"updated": "tr\u0000ue"}
    updated = await api.call("POST", path, {"metadata": metadata})
    assert (updated.status, updated.json) == (200, {**made, "metadata": metadata})
    assert (await api.call("GET", path)).json == updated.json
    gone = await api.call("DELETE", path)
    assert gone.status == 200
    assert gone.json == {"id": made["id"], "object": "conversation.deleted", "deleted": True}
    assert faults("DeletedConversationResource", gone.json) == []
    for method, body in (("GET", None), ("DELETE", None), ("POST", {"metadata": {}})):
        check_missing(await api.call(method, path, body))
    check_missing(await api.call("GET", path + "/items"))
    check_missing(await api.call("POST", path + "/items", {"items": [user("x")]}))


@pytest.mark.parametrize("body", [b"", b"{}", b'{"metadata": null, "items": null}'])
async def test_an_empty_one(api: Mounted, body: bytes) -> None:
    made = (await api.call("POST", "/conversations", data=body)).json
    assert made["metadata"] == {}
    empty: dict[str, Any] = {"object": "list", "data": [], "first_id": None, "last_id": None}
    assert await items(api, made["id"]) == {**empty, "has_more": False}


async def test_items_are_kept_in_order_and_in_full(api: Mounted) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "\u0000 42"}
    image = {"type": "input_image", "image_url": "https://x/y.png"}
    ident = await create(api, "one")
    path = f"/conversations/{ident}/items"
    given = [
        {"role": "user", "content": [image]},
        call,
        result,
        {"role": "assistant", "content": "a"},
    ]
    added = await api.call("POST", path, {"items": given})
    assert added.status == 200
    assert faults("ConversationItemList", added.json) == []
    assert added.json["items"] == added.json["data"]
    assert added.json["has_more"] is False
    assert added.json["data"][0]["content"] == [{**image, "detail": "auto"}]
    page = await items(api, ident)
    assert page["data"][1:] == added.json["data"]
    assert [item["id"].split("_")[0] for item in page["data"]] == ["msg", "msg", "fc", "fco", "msg"]
    assert [item["status"] for item in page["data"]] == ["completed"] * 5
    for item in page["data"]:
        assert (await api.call("GET", f"{path}/{item['id']}")).json == item


async def test_an_item_can_be_taken_out(api: Mounted) -> None:
    ident = await create(api, "a", "b", "c")
    path = f"/conversations/{ident}/items"
    _, middle, _ = (item["id"] for item in (await items(api, ident))["data"])
    gone = await api.call("DELETE", f"{path}/{middle}")
    assert gone.status == 200
    assert gone.json == {"id": middle, "object": "conversation.item.deleted", "deleted": True}
    assert texts(await items(api, ident)) == ["a", "c"]
    for method in ("GET", "DELETE"):
        check_missing(await api.call(method, f"{path}/{middle}"), "Item")


async def test_the_same_id_is_never_twice_in_a_conversation(api: Mounted) -> None:
    ident = await create(api, items=[user("a", id="msg_mine"), user("b", id="msg_mine")])
    again = {"items": [user("c", id="msg_mine"), user("d", id="msg_other")]}
    await api.call("POST", f"/conversations/{ident}/items", again)
    page = await items(api, ident)
    assert texts(page) == ["a", "b", "c", "d"]
    ids = [item["id"] for item in page["data"]]
    assert (ids[0], ids[3], len(set(ids))) == ("msg_mine", "msg_other", 4)
    other = await create(api, items=[user("elsewhere", id="msg_mine")])
    assert (await items(api, other))["first_id"] == "msg_mine"


async def test_pages_of_items(api: Mounted) -> None:
    ident = await create(api, *"abcdefg")
    whole = await items(api, ident)
    assert (texts(whole), whole["has_more"]) == (list("abcdefg"), False)
    first = await items(api, ident, limit=3)
    assert (texts(first), first["has_more"]) == (list("abc"), True)
    assert (first["first_id"], first["last_id"]) == (first["data"][0]["id"], first["data"][2]["id"])
    rest = await items(api, ident, limit=4, after=first["last_id"])
    assert (texts(rest), rest["has_more"]) == (list("defg"), False)
    down = await items(api, ident, order="desc", after=rest["first_id"], limit=2)
    assert (texts(down), down["has_more"]) == (list("cb"), True)
    unordered = await api.call("GET", f"/conversations/{ident}/items")
    assert texts(unordered.json) == list("gfedcba")
    including = {"include[]": "message.output_text.logprobs", "include": "no.such.thing"}
    assert texts(await items(api, ident, **including)) == list("abcdefg")


async def test_pages_of_conversations(api: Mounted) -> None:
    ids = [await create(api, metadata={"n": str(n)}) for n in range(5)]
    await create(api, owner="bob")
    await api.call("DELETE", f"/conversations/{ids[3]}")
    left = [ids[4], ids[2], ids[1], ids[0]]
    for prefix in ("/v1", "/api/v1"):
        whole = (await api.call("GET", "/conversations", prefix=prefix)).json
        assert [each["id"] for each in whole["data"]] == left
        assert (whole["object"], whole["has_more"]) == ("list", False)
        assert [faults("ConversationResource", each) for each in whole["data"]] == [[]] * 4
    query = {"limit": "2", "after": ids[4]}
    page = (await api.call("GET", "/conversations", params=query)).json
    assert ([each["id"] for each in page["data"]], page["has_more"]) == (left[1:3], True)
    query = {"limit": "2", "order": "asc", "after": ids[1]}
    page = (await api.call("GET", "/conversations", params=query)).json
    assert ([each["id"] for each in page["data"]], page["has_more"]) == ([ids[2], ids[4]], False)


async def test_the_platforms_prefix(api: Mounted) -> None:
    empty = await api.call("POST", "/conversations", {}, prefix="/api/v1")
    assert (empty.status, empty.json["items"]) == (201, [])
    body = {"items": [{"role": "user", "content": "Hello"}]}
    made = await api.call("POST", "/conversations", body, prefix="/api/v1")
    path = f"/conversations/{made.json['id']}"
    assert made.json["items"] == (await items(api, made.json["id"]))["data"]
    added = await api.call("POST", path + "/items", body, prefix="/api/v1")
    assert (added.status, len(added.json["items"])) == (200, 1)
    plain = await api.call("POST", "/conversations", body)
    assert (plain.status, "items" in plain.json) == (200, False)
    assert (await api.call("GET", path, prefix="/api/v1")).json["id"] == made.json["id"]


async def test_another_owners_conversation_is_not_there(api: Mounted) -> None:
    ident = await create(api, "secret")
    (item,) = (await items(api, ident))["data"]
    path = f"/conversations/{ident}"
    for method, suffix, body in (
        ("GET", "", None),
        ("POST", "", {"metadata": {}}),
        ("DELETE", "", None),
        ("GET", "/items", None),
        ("POST", "/items", {"items": [user("x")]}),
        ("GET", f"/items/{item['id']}", None),
        ("DELETE", f"/items/{item['id']}", None),
    ):
        check_missing(await api.call(method, path + suffix, body, owner="bob"))
    listed = await api.call("GET", "/conversations", owner="bob")
    assert listed.json["data"] == []
    query = {"after": ident}
    check_error(await api.call("GET", "/conversations", params=query, owner="bob"), 400, "after")
    reference = {"items": [{"type": "item_reference", "id": item["id"]}]}
    refused = await api.call("POST", "/conversations", reference, owner="bob")
    check_error(refused, 404, "items[0]", "not found")
    assert texts(await items(api, ident)) == ["secret"]


async def test_references_become_copies(api: Mounted) -> None:
    ident = await create(api, "first")
    (item,) = (await items(api, ident))["data"]
    references = {"items": [user("second"), {"id": item["id"]}]}
    made = await api.call("POST", "/conversations", references, prefix="/api/v1")
    assert made.json["items"][1] == item
    await api.call("DELETE", f"/conversations/{ident}/items/{item['id']}")
    assert texts(await items(api, made.json["id"])) == ["second", "first"]
    added = await api.call("POST", f"/conversations/{made.json['id']}/items", references)
    assert texts(added.json) == ["second", "first"]
    assert added.json["data"][1]["id"] != item["id"]


NOTHING = "conv_nonexistent123"
BAD_IDS = [NOTHING, "x", "a%00b", "%F0%9F%98%80", "a%20b", "x" * 3000, "'--", "%25"]


@pytest.mark.parametrize("ident", BAD_IDS)
async def test_ids_that_nothing_has(api: Mounted, ident: str) -> None:
    there = await create(api)
    for method, suffix, body in (
        ("GET", "", None),
        ("POST", "", {"metadata": {}}),
        ("DELETE", "", None),
        ("GET", "/items", None),
        ("POST", "/items", {"items": [user("x")]}),
        ("GET", "/items/x", None),
        ("DELETE", "/items/x", None),
    ):
        check_missing(await api.call(method, f"/conversations/{ident}{suffix}", body))
    for method in ("GET", "DELETE"):
        check_missing(await api.call(method, f"/conversations/{there}/items/{ident}"), "Item")
    for path in ("/conversations", f"/conversations/{there}/items"):
        check_error(await api.call("GET", f"{path}?after={ident}"), 400, "after")


async def test_the_messages_are_openais(api: Mounted) -> None:
    reply = await api.call("GET", f"/conversations/{NOTHING}")
    assert reply.error["message"] == f"Conversation with id '{NOTHING}' not found."
    ident = await create(api)
    reply = await api.call("GET", f"/conversations/{ident}/items/msg_x")
    assert reply.error["message"] == "Item with id 'msg_x' not found in conversation."


MISSING = "missing_required_parameter"
REFUSED: list[tuple[str, str, Any, str, str | None]] = [
    ("POST", "", {"items": [user("x")] * 21}, "array_above_max_length", "items"),
    ("POST", "", {"items": {}}, "invalid_type", "items"),
    ("POST", "", {"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
    ("POST", "", [], "invalid_type", None),
    ("POST", "", b'{"metadata": {"test": "invalid"}\n// nope', "invalid_json", None),
    ("POST", "/{id}", {}, MISSING, "metadata"),
    ("POST", "/{id}", b"", "invalid_json", None),
    ("POST", "/{id}/items", {}, MISSING, "items"),
    ("POST", "/{id}/items", {"items": []}, "empty_array", "items"),
    ("POST", "/{id}/items", b"", "invalid_json", None),
    ("POST", "/{id}/items", {"items": [user("x")] * 21}, "array_above_max_length", "items"),
    ("POST", "/{id}/items", {"items": [{"content": "x"}]}, MISSING, "items[0].role"),
    ("GET", "/{id}/items?limit=0", None, "integer_below_min_value", "limit"),
    ("GET", "/{id}/items?limit=-1", None, "integer_below_min_value", "limit"),
    ("GET", "/{id}/items?limit=1000", None, "integer_above_max_value", "limit"),
    ("GET", "/{id}/items?order=up", None, "invalid_value", "order"),
    ("GET", "?limit=101", None, "integer_above_max_value", "limit"),
]


@pytest.mark.parametrize(("method", "path", "body", "code", "param"), REFUSED)
async def test_refused(
    api: Mounted, method: str, path: str, body: Any, code: str, param: str | None
) -> None:
    ident = await create(api, "before")
    data = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
    reply = await api.call(method, "/conversations" + path.format(id=ident), data=data)
    check_error(reply, 400, param)
    assert reply.error["code"] == code
    assert texts(await items(api, ident)) == ["before"]
    assert len((await api.call("GET", "/conversations")).json["data"]) == 1


async def test_a_body_that_is_too_large(api: Mounted) -> None:
    reply = await api.call("POST", "/conversations", {"items": [user("x" * 70_000)]})
    assert (reply.status, reply.error["code"]) == (413, "request_too_large")


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}


async def think(database: Database, output: dict[str, Any] = THOUGHT) -> None:
    """Store a response of Alice's with this output, the reasoning in it hidden."""
    stored = StoredResponse.of(
        {"id": "resp_1", "status": "completed", "created_at": 1, "output": [output]},
        owner="alice",
        request_items=[],
        encrypted_reasoning={"rs_1": "sealed"},
        parent=None,
        conversation=None,
        account=None,
        background=False,
        resumable=False,
    )
    assert await database.write(*ResponseStore(database).added(stored))


@pytest.mark.parametrize("given", [THOUGHT, {"type": "item_reference", "id": "rs_1"}])
@pytest.mark.parametrize("added", [False, True])
async def test_hidden_reasoning_is_kept_and_shown_to_who_asks(
    api: Mounted, database: Database, given: dict[str, Any], added: bool
) -> None:
    await think(database)
    body = {"items": [given]}
    if added:
        ident = await create(api)
        made = await api.call("POST", f"/conversations/{ident}/items", body)
    else:
        made = await api.call("POST", "/conversations", body, prefix="/api/v1")
        ident = made.json["id"]
    assert made.json["items"] == [THOUGHT]
    assert (await items(api, ident))["data"] == [THOUGHT]
    query = {"include[]": "reasoning.encrypted_content"}
    shown = {**THOUGHT, "encrypted_content": "sealed"}
    assert await ConversationStore(database).history("alice", ident) == [shown]
    assert await ResponseStore(database).delete("alice", "resp_1")
    assert (await items(api, ident, **query))["data"] == [shown]
    path = f"/conversations/{ident}/items/rs_1"
    assert (await api.call("GET", path)).json == THOUGHT
    assert (await api.call("GET", path, params=query)).json == shown


async def test_reasoning_that_the_client_sent_is_not_hidden(api: Mounted) -> None:
    sent = {**THOUGHT, "encrypted_content": "mine"}
    ident = await create(api, items=[sent, {**THOUGHT, "id": "rs_unknown"}])
    assert (await items(api, ident))["data"] == [sent, {**THOUGHT, "id": "rs_unknown"}]


@pytest.mark.parametrize(
    ("odd", "param"),
    [
        ({"type": "message", "role": "assistant"}, "items[1].content"),
        ({"type": "message", "content": []}, "items[1].role"),
        ({"type": "not_known_yet"}, "items[1].type"),
        ({"type": "function_call", "call_id": 5}, "items[1].call_id"),
    ],
)
async def test_references_to_odd_items(
    api: Mounted, database: Database, odd: dict[str, Any], param: str
) -> None:
    await think(database, {**odd, "id": "odd_1"})
    body = {"items": [user("x"), {"type": "item_reference", "id": "odd_1"}]}
    check_error(await api.call("POST", "/conversations", body), 400, param)


async def test_strange_ids_of_items(api: Mounted) -> None:
    strange = [user("a", id=[]), user("b", id={}), {**THOUGHT, "id": 5}, user("c", id="a\u0000")]
    page = await items(api, await create(api, items=strange))
    assert len({item["id"] for item in page["data"]}) == 4
