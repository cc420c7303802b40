"""Stored prompts over HTTP, on both databases, and in requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from router.http.prompts import PromptsApi
from router.state.database import Database
from router.state.prompts import PromptStore
from tests.support.mounted import Mounted, mounted
from tests.support.router import Reply
from tests.support.state import database, database_url

__all__ = ["database", "database_url"]

FIELDS: dict[str, Any] = {
    "display_name": "Test Agent",
    "description": "For tests.",
    "instructions": "You are a {{tone}} assistant.\u0000",
    "model": "m",
    "temperature": 0.7,
    "tools": [{"type": "web_search"}],
}


@pytest.fixture
async def api(database: Database) -> AsyncIterator[Mounted]:
    prompts = PromptStore(database)
    async with mounted(lambda dispatcher: PromptsApi(dispatcher, prompts).routes()) as api:
        yield api


async def create(api: Mounted, name: str, owner: str = "alice", **fields: Any) -> dict[str, Any]:
    """A new prompt, as it is shown."""
    reply = await api.call("POST", "/prompts", {"name": name, **fields}, owner=owner)
    assert reply.status == 200, reply.body
    return reply.json


async def change(api: Mounted, key: str, **fields: Any) -> dict[str, Any]:
    """The prompt in the version that these changes make."""
    reply = await api.call("PUT", f"/prompts/{key}", fields)
    assert reply.status == 200, reply.body
    return reply.json


async def shown(api: Mounted, key: str, **query: str) -> dict[str, Any]:
    reply = await api.call("GET", f"/prompts/{key}", params=query)
    assert reply.status == 200, reply.body
    return reply.json


async def names(api: Mounted, **query: str) -> tuple[list[str], bool]:
    page = (await api.call("GET", "/prompts", params=query)).json
    assert page["object"] == "list"
    return [prompt["name"] for prompt in page["data"]], page["has_more"]


def check_error(reply: Reply, status: int, code: str | None, param: str | None) -> None:
    assert (reply.status, reply.error["code"], reply.error["param"]) == (status, code, param)
    assert reply.error["type"] == "invalid_request_error"
    assert len(reply.error["message"]) < 500


async def test_a_prompt_is_found_by_its_id_and_by_its_name(api: Mounted) -> None:
    made = await create(api, "test-agent", **FIELDS)
    assert made["id"].startswith("pmpt_")
    assert (made["object"], made["version"]) == ("prompt", "1")
    assert {**FIELDS, "name": "test-agent"}.items() <= made.items()
    assert await shown(api, made["id"]) == await shown(api, "test-agent") == made


async def test_the_status_of_a_new_prompt(api: Mounted) -> None:
    for prefix, status in (("/v1", 200), ("/api/v1", 201)):
        reply = await api.call("POST", "/prompts", {"name": f"agent-{status}"}, prefix=prefix)
        assert reply.status == status
    assert (await names(api))[0] == ["agent-201", "agent-200"]


@pytest.mark.parametrize("method", ["PUT", "POST"])
@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
async def test_an_update_is_a_new_version(api: Mounted, method: str, prefix: str) -> None:
    made = await create(api, "agent", **FIELDS)
    changes = {"instructions": "Be brief.", "temperature": None, "top_p": 0.5}
    reply = await api.call(method, f"/prompts/{made['id']}", changes, prefix=prefix)
    assert (reply.status, reply.json["version"]) == (200, "2")
    assert (reply.json["instructions"], reply.json["top_p"]) == ("Be brief.", 0.5)
    assert "temperature" not in reply.json
    assert reply.json["model"] == "m"
    assert await shown(api, "agent") == await shown(api, "agent", version="2") == reply.json
    assert await shown(api, made["id"], version="1") == made


async def test_what_was_shown_can_be_sent_back(api: Mounted) -> None:
    made = await create(api, "agent", **FIELDS)
    again = await change(api, "agent", **made)
    assert {k for k in made if made[k] != again[k]} <= {"version", "updated_at"}
    assert again["version"] == "2"


async def test_updates_at_the_same_moment_are_all_kept(api: Mounted) -> None:
    await create(api, "agent")
    await asyncio.gather(*(change(api, "agent", **{f"field_{n}": n}) for n in range(6)))
    latest = await shown(api, "agent")
    assert {f"field_{n}": n for n in range(6)}.items() <= latest.items()
    assert latest["version"] == "7"


async def test_a_name_can_change_and_belongs_to_one_prompt(api: Mounted) -> None:
    made = await create(api, "agent")
    await create(api, "other")
    await create(api, "agent", owner="bob")
    for method, path in (("POST", "/prompts"), ("PUT", "/prompts/other")):
        reply = await api.call(method, path, {"name": "agent"})
        check_error(reply, 409, reply.error["code"], "name")
    await change(api, "agent", name="renamed")
    assert (await shown(api, "renamed"))["id"] == made["id"]
    assert (await shown(api, "renamed", version="1"))["name"] == "renamed"
    check_error(await api.call("GET", "/prompts/agent"), 404, None, None)
    assert (await create(api, "agent"))["id"] != made["id"]


async def test_versions(api: Mounted) -> None:
    made = await create(api, "agent")
    for n in range(4):
        await change(api, "agent", user=str(n))
    path = "/prompts/agent/versions"

    async def versions(**query: str) -> tuple[list[str], bool]:
        page = (await api.call("GET", path, params=query)).json
        found = [each["version"] for each in page["data"]]
        assert {each["id"] for each in page["data"]} <= {made["id"]}
        assert (page["first_id"], page["last_id"]) == (
            (found[0], found[-1]) if found else (None,) * 2
        )
        return found, page["has_more"]

    assert await versions() == (list("54321"), False)
    assert await versions(order="asc", limit="2") == (list("12"), True)
    assert await versions(order="asc", limit="2", after="3") == (list("45"), False)
    assert await versions(after="4", limit="1") == (["3"], True)
    assert await versions(after="1") == ([], False)
    check_error(await api.call("GET", path + "?after=x"), 400, "invalid_value", "after")
    page = (await api.call("GET", f"/prompts/{made['id']}/versions")).json
    assert [each.get("user") for each in page["data"]] == ["3", "2", "1", "0", None]


async def test_pages_of_prompts(api: Mounted) -> None:
    ids = [(await create(api, name))["id"] for name in "abcde"]
    await change(api, "b", user="u")
    assert await names(api) == (list("edcba"), False)
    assert await names(api, limit="2") == (["e", "d"], True)
    assert await names(api, limit="3", after=ids[3]) == (list("cba"), False)
    assert await names(api, order="asc", after=ids[3]) == (["e"], False)
    listed = (await api.call("GET", "/prompts", params={"order": "asc"})).json["data"][1]
    assert (listed["version"], listed["user"]) == ("2", "u")


async def test_a_deleted_prompt_is_gone_with_its_versions(api: Mounted) -> None:
    for by_name in (False, True):
        made = await create(api, "agent")
        await change(api, "agent", user="u")
        gone = await api.call("DELETE", f"/prompts/{'agent' if by_name else made['id']}")
        assert gone.json == {"id": made["id"], "object": "prompt.deleted", "deleted": True}
        for key in ("agent", made["id"]):
            for path in (
                f"/prompts/{key}",
                f"/prompts/{key}?version=1",
                f"/prompts/{key}/versions",
            ):
                check_error(await api.call("GET", path), 404, None, None)
            check_error(await api.call("PUT", f"/prompts/{key}", {}), 404, None, None)
            check_error(await api.call("DELETE", f"/prompts/{key}"), 404, None, None)
    assert await names(api) == ([], False)


async def test_another_owners_prompt_is_not_there(api: Mounted) -> None:
    made = await create(api, "agent", instructions="secret")
    for key in ("agent", made["id"]):
        for method, suffix in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "/versions")):
            body: Any = {} if method == "PUT" else None
            reply = await api.call(method, f"/prompts/{key}{suffix}", body, owner="bob")
            check_error(reply, 404, None, None)
    assert (await api.call("GET", "/prompts", owner="bob")).json["data"] == []
    query = {"after": made["id"]}
    reply = await api.call("GET", "/prompts", owner="bob", params=query)
    check_error(reply, 400, "invalid_value", "after")
    mine = await create(api, "agent", owner="bob")
    assert mine["id"] != made["id"]
    assert (await shown(api, "agent"))["instructions"] == "secret"


@pytest.mark.parametrize("key", ["pmpt_none", "a%00b", "%F0%9F%98%80", "x" * 3000, "'--", "%25"])
async def test_keys_that_nothing_has(api: Mounted, key: str) -> None:
    await create(api, "agent")
    for method, suffix in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "/versions")):
        body: Any = {} if method == "PUT" else None
        check_error(await api.call(method, f"/prompts/{key}{suffix}", body), 404, None, None)
    check_error(await api.call("GET", f"/prompts?after={key}"), 400, "invalid_value", "after")


MISSING = "missing_required_parameter"
REFUSED: list[tuple[str, str, Any, int, str | None, str | None]] = [
    ("POST", "", {}, 400, MISSING, "name"),
    ("POST", "", b"", 400, "invalid_json", None),
    ("POST", "", [], 400, "invalid_type", None),
    ("POST", "", {"name": "a b"}, 400, "invalid_value", "name"),
    ("POST", "", {"name": "a", "stream": True}, 400, "unsupported_parameter", "stream"),
    ("POST", "", {"name": "a", "top_p": 2}, 400, "decimal_above_max_value", "top_p"),
    ("PUT", "/agent", {"name": None}, 400, MISSING, "name"),
    ("PUT", "/agent", {"store": False}, 400, "unsupported_parameter", "store"),
    ("PUT", "/agent", {"input": 5}, 400, "invalid_type", "input"),
    ("PUT", "/agent", b"{", 400, "invalid_json", None),
    ("GET", "/agent?version=2", None, 404, None, None),
    ("GET", "/agent?version=0", None, 400, "invalid_value", "version"),
    ("GET", "/agent?version=latest", None, 400, "invalid_value", "version"),
    ("GET", "?limit=0", None, 400, "integer_below_min_value", "limit"),
    ("GET", "/agent/versions?order=up", None, 400, "invalid_value", "order"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code", "param"), REFUSED)
async def test_refused(
    api: Mounted,
    method: str,
    path: str,
    body: Any,
    status: int,
    code: str | None,
    param: str | None,
) -> None:
    made = await create(api, "agent")
    data = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
    check_error(await api.call(method, "/prompts" + path, data=data), status, code, param)
    assert await names(api) == (["agent"], False)
    assert await shown(api, "agent") == made


async def test_credentials_are_kept_but_not_shown(api: Mounted, database: Database) -> None:
    tool = {"type": "mcp", "server_label": "s", "server_url": "https://x"}
    made = await create(api, "agent", tools=[{**tool, "authorization": "tok"}])
    assert made["tools"] == (await shown(api, "agent"))["tools"] == [tool]
    await change(api, "agent", user="u")
    stored = await PromptStore(database).get("alice", "agent")
    assert stored is not None
    assert orjson.loads(stored.body)["tools"] == [{**tool, "authorization": "tok"}]
