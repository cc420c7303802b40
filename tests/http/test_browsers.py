"""Web pages: what they may ask of a router without keys, and CORS for configured origins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from tests.support.client import Client
from tests.support.fetch import fetch
from tests.support.reloading import keys, reload, with_key
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, streamed, whole

CHAT = SPEECH["chat"]
ASKED = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
EVIL = "http://evil.com"
APP = "https://app.example"
ADMIN = "sk-admin"


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    """A chat upstream that answers."""
    async with Upstream(default=whole(CHAT.whole)) as serving:
        yield serving


def open_router(upstream: Upstream, **sections: Any) -> Any:
    return routing(endpoint(upstream, "chat"), admin={"key": ADMIN}, **sections)


async def send(router: Router, method: str, path: str, /, **headers: str) -> Reply:
    """Headers are named with underscores. POST sends a chat request, declared as JSON."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = ASKED if method == "POST" else None
    if body is not None:
        named.setdefault("Content-Type", "application/json")
    return await fetch(router.http, method, router.url + path, data=body, headers=named)


async def chat(router: Router, **headers: str) -> Reply:
    return await send(router, "POST", "/v1/chat/completions", **headers)


EVERYTHING = [
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", "/"),
    ("GET", "/v1/models"),
    ("GET", "/v1/usage"),
    ("GET", "/admin/endpoints"),
    ("GET", "/admin/nothing"),
    ("GET", "/api/tags"),
    ("GET", "/nothing"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/messages"),
    ("POST", "/api/chat"),
]


@pytest.mark.parametrize(("method", "path"), EVERYTHING)
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.com"},
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Upgrade": "websocket", "Connection": "Upgrade", "Origin": EVIL},
        {"Upgrade": "websocket", "Connection": "Upgrade", "Host": "evil.com"},
    ],
    ids="+".join,
)
async def test_without_keys_no_page_gets_anything(
    upstream: Upstream, method: str, path: str, headers: dict[str, str]
) -> None:
    async with open_router(upstream) as router:
        reply = await send(router, method, path, Authorization=f"Bearer {ADMIN}", **headers)
        assert reply.status == 403
        assert "server." in str(reply.json)  # the setting that allows it
        # Each in the envelope of its API.
        if path == "/v1/messages":
            assert reply.json["type"] == "error"
        elif path == "/" or path.startswith("/api/"):
            assert list(reply.json) == ["error"]
            assert isinstance(reply.json["error"], str)
        else:
            assert reply.error["code"] in ("host_not_allowed", "origin_not_allowed")
        assert upstream.requests == []


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:9", "localhost.", "app.localhost:8080", "127.0.0.1:1", "127.8.8.8",
        "[::1]", "[::1]:8080",
    ],
)  # fmt: skip
async def test_local_names_are_answered_to(upstream: Upstream, host: str) -> None:
    async with open_router(upstream) as router:
        assert (await chat(router, Host=host)).status == 200
        assert (await chat(router, Host=host, Origin=f"http://{host}")).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "localhost.evil.com", "127.0.0.1.evil.com", "evillocalhost", "0.0.0.0:1", "[::2]",
        "10.0.0.1", "localhost@evil.com", "localhost:80@evil.com", "[::1].evil.com", "",
        "evil.com:127",
    ],
)  # fmt: skip
async def test_what_looks_local_is_not(upstream: Upstream, host: str) -> None:
    async with open_router(upstream) as router:
        assert (await chat(router, Host=host)).status == 403
        assert (await chat(router, Origin=f"http://{host}")).status == 403


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        ("", "Host: localhost\n", 200),
        ("http://localhost", "Host: localhost\n", 200),
        ("http://evil.com", "Host: localhost\n", 403),
        ("http://localhost@evil.com", "Host: localhost\n", 403),
        ("http://localhost", "Host: evil.com\n", 403),
        ("", "Host: localhost\nOrigin: http://localhost\n", 200),
        ("", "Host: localhost\nOrigin: http://localhost\nOrigin: http://evil.com\n", 403),
        ("", "Host: localhost\nOrigin: http://localhost http://evil.com\n", 403),
    ],
)
async def test_every_host_and_origin_of_a_request_counts(
    upstream: Upstream, target: str, headers: str, status: int
) -> None:
    """The target may be a whole URL, and Origin may be given twice."""
    async with open_router(upstream) as router:
        client = await Client.open(router.url)
        try:
            head = f"GET {target}/v1/models HTTP/1.1\n{headers}Connection: close\n\n"
            client.send(head.replace("\n", "\r\n").encode())
            while await client.take(4096):
                pass
        finally:
            client.leave("close")
        assert client.received.split()[1] == str(status).encode()


async def test_configured_hosts_are_answered_to(upstream: Upstream) -> None:
    hosts = ["Router.lan", "*.corp.example", "10.1.0.0/16", "fd00::7"]
    async with open_router(upstream, server={"allowed_hosts": hosts}) as router:
        for host in ("router.lan:8080", "a.corp.example", "10.1.2.3:80", "[fd00::7]", "localhost"):
            assert (await chat(router, Host=host)).status == 200, host
            assert (await chat(router, Host=host, Origin=f"http://{host}")).status == 200, host
        for host in ("corp.example", "10.2.0.1", "lan", "xrouter.lan"):
            assert (await chat(router, Host=host)).status == 403, host
        # A page of another host is not of this one because its host could be, too.
        refused = await chat(router, Host="router.lan", Origin="http://a.corp.example")
        assert refused.error["code"] == "origin_not_allowed"


async def test_a_router_listens_elsewhere_without_keys_for_configured_hosts_only(
    upstream: Upstream,
) -> None:
    server = {"host": "0.0.0.0", "allowed_hosts": ["router.lan"]}
    async with open_router(upstream, server=server) as router:
        assert (await chat(router, Host="router.lan")).status == 200
        reply = await chat(router, Host="192.168.7.7:8080")
        assert reply.status == 403
        assert "server.allowed_hosts" in reply.error["message"]
        assert "192.168.7.7" in reply.error["message"]


@pytest.mark.parametrize(
    "declared",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
)
async def test_a_page_declares_its_body_as_json(upstream: Upstream, declared: str) -> None:
    async with open_router(upstream) as router:
        # curl -d, as Ollama's documentation has it
        assert (await chat(router, Content_Type=declared)).status == 200
        refused = await chat(router, Content_Type=declared, Origin="http://localhost:3000")
        assert (refused.status, refused.error["code"]) == (415, "unsupported_media_type")
        refused = await chat(router, Content_Type=declared, Sec_Fetch_Site="cross-site")
        assert refused.status in (403, 415)
        for json in ("application/json", "Application/JSON; charset=utf-8", "application/a.b+json"):
            reply = await chat(router, Content_Type=json, Origin="http://localhost:3000")
            assert reply.status == 200


async def test_links_and_what_people_type_are_followed(upstream: Upstream) -> None:
    followed = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    framed = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}
    async with open_router(upstream) as router:
        for site in ("none", "same-origin", "cross-site"):
            reply = await send(router, "GET", "/docs", Sec_Fetch_Site=site, **followed)
            assert reply.status == 200
        reply = await send(router, "GET", "/docs", Sec_Fetch_Site="cross-site", **framed)
        assert reply.status == 403
        reply = await chat(router, Sec_Fetch_Site="cross-site", **followed)
        assert reply.status == 403


async def test_with_keys_names_and_origins_do_not_matter(upstream: Upstream) -> None:
    async with open_router(upstream, auth=keys("sk-one")) as router:
        page = {"Host": "router.example", "Origin": EVIL, "Sec_Fetch_Site": "cross-site"}
        assert (await chat(router, **page, **with_key("sk-one"))).status == 200
        assert (await send(router, "GET", "/health", Host="10.0.0.9")).status == 200


async def test_a_reload_that_takes_the_keys_away_brings_the_rules(upstream: Upstream) -> None:
    one = endpoint(upstream, "chat")
    async with routing(one, auth=keys("sk-one")) as router:
        assert (await send(router, "GET", "/health", Host="evil.com")).status == 200
        await reload(router, one)
        assert (await send(router, "GET", "/health", Host="evil.com")).status == 403
        await reload(router, one, auth=keys("sk-two"))
        assert (await send(router, "GET", "/health", Host="evil.com")).status == 200


PREFLIGHT = {
    "Access_Control_Request_Method": "POST",
    "Access_Control_Request_Headers": "authorization, x-api-key,anthropic-version,openai-beta",
}


@pytest.mark.parametrize("auth", [{}, keys("sk-one")], ids=["open", "keys"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat", "/admin/x"])
async def test_preflights_of_configured_origins(
    upstream: Upstream, auth: dict[str, Any], path: str
) -> None:
    async with open_router(upstream, auth=auth, server={"cors": [APP]}) as router:
        reply = await send(router, "OPTIONS", path, Origin=APP, **PREFLIGHT)
        assert (reply.status, reply.body) == (204, b"")
        assert reply.headers["Access-Control-Allow-Origin"] == APP
        assert "POST" in reply.headers["Access-Control-Allow-Methods"]
        allowed = reply.headers["Access-Control-Allow-Headers"]
        assert allowed == PREFLIGHT["Access_Control_Request_Headers"]
        assert "Access-Control-Allow-Credentials" not in reply.headers
        assert reply.headers["Vary"] == "Origin"
        for other in (EVIL, "null", APP + ":8443", "http://app.example"):
            reply = await send(router, "OPTIONS", path, Origin=other, **PREFLIGHT)
            assert reply.status in (401, 403, 405)
            assert "Access-Control-Allow-Origin" not in reply.headers
            assert reply.headers["Vary"] == "Origin"


async def test_answers_for_configured_origins(upstream: Upstream) -> None:
    section = {"server": {"cors": ["HTTPS://App.Example:443"]}, "auth": keys("sk-one")}
    async with open_router(upstream, **section) as router:
        for headers, status in ((with_key("sk-one"), 200), (with_key("sk-wrong"), 401)):
            reply = await chat(router, Origin=APP, **headers)
            assert reply.status == status
            assert reply.headers["Access-Control-Allow-Origin"] == APP
            exposed = reply.headers["Access-Control-Expose-Headers"].split(", ")
            assert {"X-Request-Id", "X-Cache", "X-Pointsman-Endpoint"} <= set(exposed)
            own = {name.lower() for name in reply.headers if name.startswith("X-")}
            assert own <= {name.lower() for name in exposed}
        for path in ("/health", "/nothing", "/v1/models"):
            reply = await send(router, "GET", path, Origin=APP)
            assert reply.headers["Access-Control-Allow-Origin"] == APP
        reply = await chat(router, **with_key("sk-one"))
        assert "Access-Control-Allow-Origin" not in reply.headers
        assert reply.headers["Vary"] == "Origin"


async def test_every_origin(upstream: Upstream) -> None:
    async with open_router(upstream, server={"cors": ["*"]}) as router:
        reply = await chat(router, Origin=EVIL)
        assert reply.status == 200
        assert reply.headers["Access-Control-Allow-Origin"] == "*"
        assert "Access-Control-Allow-Credentials" not in reply.headers
        reply = await chat(router, Origin=EVIL, Content_Type="text/plain")
        assert reply.status == 415
        assert (await chat(router, Origin=EVIL, Host="evil.com")).status == 403


async def test_streams_are_shared_too(upstream: Upstream) -> None:
    upstream.default = streamed(*CHAT.pieces)
    async with open_router(upstream, server={"cors": [APP]}) as router:
        async with router.http.post(
            router.url + "/v1/responses",
            json={"model": "m", "input": "hi", "stream": True},
            headers={"Origin": APP},
        ) as response:
            reply = Reply(response.status, response.headers, await response.read())
        assert reply.events[-1].type == "response.completed"
        assert reply.headers["Access-Control-Allow-Origin"] == APP


async def test_refused_requests_are_logged_and_counted(upstream: Upstream) -> None:
    async with open_router(upstream, logging={"access": True}) as router:
        await chat(router, Host="evil.com")
        [line] = [line for line in router.log if line["event"] == "request"]
        assert (line["status"], line["error"]) == (403, "host_not_allowed")
        [count] = await router.metric("pointsman_requests_total", outcome="refused")
        assert count == 1
