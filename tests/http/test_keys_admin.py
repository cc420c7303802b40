"""``/admin/keys``: making, showing, changing and revoking keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import structlog
from aiohttp import web

from router.core.exchange import Operation
from router.core.plugin_chain import PluginChain
from router.core.plugin_sets import PluginSets, proceed
from router.http.body import expect_later
from router.http.dispatcher import RequestDispatcher
from router.http.keys_admin import KeysAdmin
from router.settings.schema import ServerSettings, Settings
from tests.support.fetch import fetch
from tests.support.fleet import http_client, listening
from tests.support.keys import Here, here
from tests.support.router import Reply, settings_for
from tests.support.state import database, database_url

__all__ = ["database", "database_url"]

ENDPOINT = {"name": "a", "url": "http://127.0.0.1:1", "dialect": "ollama"}
TAGS = {"team-a": {"budgets": [{"period": "day", "usd": 1}]}}
SERVED = {"gpt-*", "m"}
CONFIGURED = {"name": "cfg", "key": "sk-cfg", "models": ["m"], "expires": "2001-01-01"}


@dataclass
class Admin:
    """The routes, listening; whoever speaks to them has been let in."""

    url: str
    http: aiohttp.ClientSession
    here: Here
    settings: Settings

    async def call(self, method: str, path: str = "", body: Any = None, **options: Any) -> Reply:
        if body is not None:
            options["json"] = body
        return await fetch(self.http, method, f"{self.url}/admin/keys{path}", **options)

    async def made(self, name: str, **fields: Any) -> str:
        """The secret of a new key."""
        reply = await self.call("POST", "", {"name": name, **fields})
        assert reply.status == 201, reply.body
        secret: str = reply.json["key"]
        return secret


def settings(*keys: dict[str, Any]) -> Settings:
    return settings_for(
        ENDPOINT, auth={"keys": list(keys)}, accounts={"tags": TAGS}, fallbacks={"old": ["m"]}
    )


@pytest.fixture
async def admin(database: Any) -> AsyncIterator[Admin]:
    async def anybody(exchange: Any) -> None:
        exchange.context.caller = "admin"

    dispatcher = RequestDispatcher(PluginSets(PluginChain([]), proceed), ServerSettings())
    async with here(database) as one:
        api = KeysAdmin(dispatcher, one.store, lambda: found.settings, SERVED.__contains__)
        app = web.Application()
        for method, path, handler in api.routes():
            guarded = dispatcher.route(Operation.ADMIN, "/admin" + path, handler, anybody)
            app.router.add_route(method, "/admin" + path, guarded, expect_handler=expect_later)
        async with listening(app) as url, http_client() as http:
            found = Admin(url, http, one, settings(CONFIGURED))
            yield found
        await dispatcher.stop()


async def test_a_key_from_its_beginning_to_its_end(admin: Admin) -> None:
    fields = {
        "models": ["gpt-*"],
        "tags": ["team"],
        "budgets": [{"period": "month", "usd": 50.0}],
        "limits": {"requests_per_minute": 60},
        "priority": 2,
    }
    with structlog.testing.capture_logs() as log:
        reply = await admin.call("POST", "", {"name": "ann", **fields})
        assert reply.status == 201
        secret = reply.json["key"]
        made = {k: v for k, v in reply.json.items() if k != "key"}
        assert made | fields == made
        assert (made["source"], made["state"], made["expires"]) == ("virtual", "active", None)
        assert made["hint"] == f"sk-sy-...{secret[-4:]}"
        assert (await admin.call("GET", "/ann")).json == made
        assert await admin.here.name(secret) == "ann"

        changed = await admin.call("PATCH", "/ann", {"expires": "2999-01-01", "models": None})
        assert (changed.status, changed.json["models"]) == (200, None)
        assert changed.json["expires"] == "2999-01-01T00:00:00+00:00"
        assert changed.json["limits"] == {"requests_per_minute": 60}

        rotated = await admin.call("POST", "/ann/rotate", {"grace": 100})
        assert rotated.status == 200
        assert rotated.json["previous_until"].endswith("+00:00")
        second = rotated.json["key"]
        assert [await admin.here.name(s) for s in (secret, second)] == ["ann", "ann"]
        third = (await admin.call("POST", "/ann/rotate")).json["key"]
        assert [await admin.here.name(s) for s in (second, third)] == [None, "ann"]

        gone = await admin.call("DELETE", "/ann")
        assert (gone.status, gone.json["state"]) == (200, "revoked")
        assert await admin.here.name(third) is None
        assert (await admin.call("DELETE", "/ann")).json["state"] == "revoked"
        for method, path in (("PATCH", "/ann"), ("POST", "/ann/rotate")):
            refused = await admin.call(method, path, {})
            assert (refused.status, refused.error["code"]) == (409, "key_revoked")
        for shown in (await admin.call("GET", "/ann"), await admin.call("GET")):
            for text in (secret, second, third):
                assert text not in shown.body.decode()
    for text in (secret, second, third):
        assert text not in repr(log)
    assert [line["event"] for line in log] == [
        "virtual key created",
        "virtual key changed",
        "virtual key rotated",
        "virtual key rotated",
        "virtual key revoked",
        "virtual key revoked",
    ]
    assert {line["key"] for line in log} == {"ann"}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_required_parameter", "name"),
        ({"name": ""}, "missing_required_parameter", "name"),
        ({"name": 1}, "invalid_type", "name"),
        ({"name": "a b"}, "invalid_value", "name"),
        ({"name": "ann", "models": []}, "invalid_value", "models"),
        ({"name": "ann", "colour": "red"}, "unknown_parameter", "colour"),
        ({"name": "ann", "limits": {"rpm": 1}}, "unknown_parameter", "limits.rpm"),
        ({"name": "ann", "limits": {"requests_per_minute": "5"}}, "invalid_type",
         "limits.requests_per_minute"),
        ({"name": "ann", "models": {"a": 1}}, "invalid_type", "models"),
        ({"name": "ann", "endpoints": ["a", "b*"]}, "invalid_value", "endpoints[1]"),
        ({"name": "ann", "tags": ["x", "x"]}, "invalid_value", "tags[1]"),
        ({"name": "ann", "budgets": [{"period": "day"}]}, "invalid_value", "budgets[0]"),
        ({"name": "ann", "x" * 9999: 1}, "unknown_parameter", "x" * 200),
        ([], "invalid_type", None),
    ],
)  # fmt: skip
async def test_bodies_that_cannot_be(admin: Admin, body: Any, code: str, param: str | None) -> None:
    reply = await admin.call("POST", "", body)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, code, param)
    assert (await admin.call("GET", "/ann")).status == 404


async def test_a_change_is_as_strict(admin: Admin) -> None:
    await admin.made("ann", priority=2)
    for body, code, param in (
        ({"priority": "5"}, "invalid_type", "priority"),
        (
            {"model_limits": {"m": {"concurrent": True}}},
            "invalid_type",
            "model_limits.m.concurrent",
        ),
        ({"endpoints": ["nope"]}, "invalid_value", "endpoints[0]"),
        ({"models": ["m", "m"]}, "invalid_value", "models[1]"),
    ):
        reply = await admin.call("PATCH", "/ann", body)
        assert (reply.status, reply.error["code"], reply.error["param"]) == (400, code, param)
        for word in ("tuple", "dict", "Input should"):
            assert word not in reply.error["message"]
    assert (await admin.call("GET", "/ann")).json["priority"] == 2


async def test_what_may_be_a_slip_is_told(admin: Admin) -> None:
    fields = {"models": ["m", "old", "gpt-9"], "model_limits": {"o9": {}}, "tags": ["Team-a", "b"]}
    made = await admin.call("POST", "", {"name": "ann", **fields})
    assert made.status == 201
    said = [
        "models[2]: no endpoint serves a model 'gpt-9' at the moment.",
        "model_limits.o9: no endpoint serves a model 'o9' at the moment.",
        "tags[0]: 'Team-a' has no budget; did you mean 'team-a'?",
    ]
    assert made.json["warnings"] == said
    assert "warnings" not in (await admin.call("GET", "/ann")).json
    changed = await admin.call("PATCH", "/ann", {"tags": ["Team-a"]})
    assert changed.json["warnings"] == said[2:]
    fine = await admin.call("PATCH", "/ann", {"models": ["gpt-*"], "tags": ["team-a"]})
    assert (fine.status, "warnings" in fine.json) == (200, False)


async def test_parameters_that_there_are_not(admin: Admin) -> None:
    for query in ({"foo": "1"}, {"limit": "5", "order": "asc"}):
        refused = await admin.call("GET", params=query)
        assert (refused.status, refused.error["code"]) == (400, "unknown_parameter")
        assert refused.error["param"] == list(query)[-1]


async def test_names_that_are_taken(admin: Admin) -> None:
    await admin.made("ann")
    for name in ("ann", "cfg", "default"):
        reply = await admin.call("POST", "", {"name": name})
        assert (reply.status, reply.error["code"]) == (409, "name_taken")
        assert reply.error["param"] == "name"


async def test_keys_that_are_not_there(admin: Admin) -> None:
    for method, path in (
        ("GET", "/nobody"), ("PATCH", "/nobody"), ("DELETE", "/nobody"), ("POST", "/nobody/rotate"),
        ("GET", "/" + "x" * 5000), ("GET", "/a%00b"),
    ):  # fmt: skip
        reply = await admin.call(method, path, {} if method in ("PATCH", "POST") else None)
        assert reply.status == 404
        assert len(reply.error["message"]) < 300


@pytest.mark.parametrize("body", [{"grace": -1}, {"grace": "1h"}, {"grace": True}, {"hours": 1}])
async def test_a_grace_that_cannot_be(admin: Admin, body: dict[str, Any]) -> None:
    secret = await admin.made("ann")
    reply = await admin.call("POST", "/ann/rotate", body)
    assert (reply.status, reply.error["param"]) == (400, next(iter(body)))
    assert await admin.here.name(secret) == "ann"


async def test_configured_keys_are_shown_and_changed_elsewhere(admin: Admin) -> None:
    shown = (await admin.call("GET", "/cfg")).json
    assert (shown["source"], shown["state"], shown["models"]) == ("configuration", "expired", ["m"])
    assert "sk-cfg" not in repr(shown)
    for method, path in (("PATCH", "/cfg"), ("DELETE", "/cfg"), ("POST", "/cfg/rotate")):
        reply = await admin.call(method, path, {})
        assert (reply.status, reply.error["code"]) == (409, "configured_key")
        assert "auth.keys[0]" in reply.error["message"]


async def test_pages(admin: Admin) -> None:
    admin.settings = settings({"name": "z", "key": "sk-z"}, {"name": "b", "key": "sk-b"})
    for name in ("a", "c", "d"):
        await admin.made(name)
    names = ["z", "b", "a", "c", "d"]
    for limit in (1, 2, 3, 4, 5, 6):
        found: list[str] = []
        more = True
        while more:
            query = {"limit": str(limit), **({"after": found[-1]} if found else {})}
            reply = (await admin.call("GET", params=query)).json
            assert reply["object"] == "list"
            assert len(reply["data"]) <= limit
            found += [key["name"] for key in reply["data"]]
            more = reply["has_more"]
        assert found == names
    assert [key["name"] for key in (await admin.call("GET")).json["data"]] == names
    for bad in ("0", "1001", "x", "9" * 5000):
        refused = await admin.call("GET", params={"limit": bad})
        assert (refused.status, refused.error["param"]) == (400, "limit")


async def test_an_open_router_makes_no_keys(admin: Admin) -> None:
    admin.settings = settings()
    reply = await admin.call("POST", "", {"name": "ann"})
    assert (reply.status, reply.error["code"]) == (409, "keys_not_in_use")
    assert "auth.keys" in reply.error["message"]
    assert await admin.here.store.page("", 1) == []
