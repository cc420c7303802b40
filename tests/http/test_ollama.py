"""Ollama's API over HTTP: its form, who may do what, and what the whole fleet is told as."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
import pytest

from router.core.upstream import Transport
from router.http.ollama_models import LEVEL
from router.settings.schema import Dialect
from router.simulate import create_backend
from router.simulate import listening as backend_listening
from tests.support.admin import ADMIN, ADMIN_KEY
from tests.support.dialects import dialect, speech
from tests.support.fetch import fetch
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH, Speech
from tests.support.upstream import Upstream, refused_port, streamed, whole
from tests.support.waiting import until

__all__ = ["dialect", "speech"]

HELLO = [{"role": "user", "content": "hi"}]
KEY = "sk-of-a-client"
TEXT = "Hello, wörld!"


async def call(
    router: Router, method: str, path: str, body: Any = None, *, key: str = "", **headers: str
) -> Reply:
    """A request below ``/api``."""
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = orjson.dumps(body) if body is not None else None
    url = f"{router.url}/api{path}"
    return await fetch(router.http, method, url, data=data, headers=headers)


async def chat(router: Router, *, key: str = "", **fields: Any) -> Reply:
    """Ask the model ``m``."""
    body = {"model": "m", "messages": HELLO, "stream": False, **fields}
    return await call(router, "POST", "/chat", body, key=key)


def lines(reply: Reply) -> list[dict[str, Any]]:
    """The lines of a stream."""
    assert reply.headers["Content-Type"] == "application/x-ndjson"
    assert reply.body.endswith(b"\n")
    return [orjson.loads(line) for line in reply.body.splitlines()]


def error(reply: Reply, status: int) -> str:
    """What an error says, which has nothing beside it."""
    assert reply.status == status, reply.body
    assert reply.headers["X-Request-Id"]
    assert reply.headers["Content-Type"] == "application/json"
    [(name, said)] = reply.json.items()
    assert name == "error"
    assert isinstance(said, str)
    return said


@asynccontextmanager
async def ollamas(*names: str, load_seconds: float = 0.0) -> AsyncIterator[list[dict[str, Any]]]:
    """Simulated Ollamas as endpoints, each with a model of its own and ``shared``."""
    async with AsyncExitStack() as stack:
        made = []
        for name in names:
            models = (f"of-{name}:latest", "shared:latest")
            app = create_backend("ollama", models, pace=0, load_seconds=load_seconds)
            url = await stack.enter_async_context(backend_listening(app))
            made.append(endpoint(url, "ollama", name, models=None))
        yield made


async def test_an_answer(dialect: Dialect, speech: Speech) -> None:
    async with Upstream() as upstream, routing(endpoint(upstream, dialect)) as router:
        upstream.default = whole(speech.whole)
        reply = await chat(router)
        assert reply.status == 200, reply.body
        assert reply.json["message"] == {"role": "assistant", "content": TEXT}
        assert reply.json["model"] == "m"
        assert reply.json["done_reason"] == "stop"
        assert reply.headers["X-Pointsman-Endpoint"] == "one"
        upstream.default = streamed(*speech.pieces)
        reply = await chat(router, stream=True)
        *words, last = lines(reply)
        assert "".join(line["message"]["content"] for line in words) == TEXT
        assert last["done"] is True
        assert reply.headers["X-Pointsman-Endpoint"] == "one"
        [row, _] = router.rows
        assert row.operation == "ollama_chat"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_stood_in_is_named(stream: bool) -> None:
    speech = SPEECH["chat"]
    script = streamed(*speech.pieces) if stream else whole(speech.whole)
    async with Upstream(default=script) as upstream, refused_port() as nobody:
        dead = endpoint(nobody, "chat", "dead", models=["m"])
        alive = endpoint(upstream, "chat", "alive", models=["other"])
        async with routing(dead, alive, fallbacks={"m": ["other"]}) as router:
            told = lines(await chat(router, stream=True)) if stream else [(await chat(router)).json]
    assert {line["model"] for line in told} == {"other"}


async def test_a_stream_that_breaks(dialect: Dialect, speech: Speech) -> None:
    async with Upstream() as upstream, routing(endpoint(upstream, dialect)) as router:
        upstream.default = streamed(speech.opening, *speech.words[:2])
        *words, last = lines(await chat(router, stream=True))
        assert [line["done"] for line in words] == [False, False]
        assert list(last) == ["error"]
        await router.idle()


async def test_an_endpoint_that_refuses(dialect: Dialect) -> None:
    async with Upstream() as upstream, routing(endpoint(upstream, dialect)) as router:
        upstream.default = whole(b'{"error":{"message":"No such thing."}}', status=400)
        for stream in (False, True):
            assert error(await chat(router, stream=stream), 400) == "No such thing."


async def test_what_is_sent_on(dialect: Dialect, speech: Speech) -> None:
    async with Upstream() as upstream, routing(endpoint(upstream, dialect)) as router:
        upstream.default = whole(speech.whole)
        options = {"temperature": 0.5, "num_ctx": 9, "num_predict": 20, "seed": 1}
        reply = await chat(router, options=options, keep_alive="5m")
        assert reply.status == 200, reply.body
        dropped = reply.headers["X-Pointsman-Dropped-Parameters"].split(", ")
        assert dropped[:2] == ["keep_alive", "options.num_ctx"]
        assert dropped[2:] == (["options.seed"] if dialect in ("responses", "messages") else [])
        [received] = upstream.requests
        sent = received.json
        if dialect == "ollama":
            assert sent["options"] == {"temperature": 0.5, "num_predict": 20, "seed": 1}
            assert "keep_alive" not in sent
        else:
            assert sent["temperature"] == 0.5
            assert 20 in (sent.get("max_tokens"), sent.get("max_output_tokens"))
        assert sent.get("store") in (False, None)


async def test_strictly_nothing_is_left_out(speech: Speech, dialect: Dialect) -> None:
    server = {"unsupported": "strict"}
    async with (
        Upstream() as upstream,
        routing(endpoint(upstream, dialect), server=server) as router,
    ):
        upstream.default = whole(speech.whole)
        said = error(await chat(router, options={"num_gpu": 1}), 400)
        assert "'options.num_gpu'" in said
        assert upstream.requests == []
        assert (await chat(router)).status == 200


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "it is empty"),
        (b"[]", 400, "expected a JSON object"),
        (b"{", 400, "not valid JSON"),
        (b"{}", 400, "Missing required parameter: 'model'"),
        (b'{"model":"m","messages":[1]}', 400, "'messages[0]'"),
        (b'{"model":"m","messages":[{"role":"user"}],"stream":1}', 400, "'stream'"),
        (b'{"model":"nope","messages":[{"role":"user"}]}', 404, "'nope'"),
    ],
)
async def test_bad_requests(body: bytes, status: int, said: str) -> None:
    async with Upstream() as upstream, routing(endpoint(upstream, "chat")) as router:
        reply = await fetch(router.http, "POST", f"{router.url}/api/chat", data=body)
        assert said in error(reply, status)


async def test_routes_that_are_not_there() -> None:
    async with Upstream() as upstream, routing(endpoint(upstream, "chat")) as router:
        assert "Unknown request URL" in error(await call(router, "GET", "/nope"), 404)
        assert "Unknown request URL" in error(await call(router, "POST", "/v2/models"), 404)
        reply = await call(router, "GET", "/chat")
        assert "POST" in error(reply, 405)
        assert reply.headers["Allow"] == "POST"
        # Below /api/v1 it is OpenAI's API that has no such route.
        assert (await call(router, "GET", "/v1/nope")).error["code"] == "unknown_url"
        assert await router.metric("pointsman_requests_total", operation="other")


@pytest.mark.parametrize("foreign", [False, True])
async def test_the_heartbeat(foreign: bool) -> None:
    async with (
        Upstream() as upstream,
        routing(endpoint(upstream, "chat"), foreign=foreign) as router,
    ):
        for method, body in (("GET", b"Pointsman is running"), ("HEAD", b"")):
            async with router.http.request(method, f"{router.url}/") as reply:
                assert (reply.status, await reply.read()) == (200, body)


async def test_the_version() -> None:
    async with Upstream() as upstream, routing(endpoint(upstream, "chat")) as router:
        reply = await call(router, "GET", "/version")
        assert reply.json == {"version": LEVEL}
        assert reply.headers["X-Pointsman-Version"]


KEYS = {"keys": [{"name": "team", "key": KEY, "models": ["of-a*", "shared*", "m"]}]}


async def test_keys() -> None:
    async with (
        ollamas("a", "b") as endpoints,
        Upstream() as upstream,
        routing(*endpoints, endpoint(upstream, "chat", "c", models=["m", "x"]), auth=KEYS,
                admin=ADMIN) as router,
    ):  # fmt: skip
        for method, path in (
            ("GET", "/tags"), ("GET", "/ps"), ("GET", "/version"), ("POST", "/show"),
            ("POST", "/chat"), ("POST", "/generate"), ("POST", "/embed"), ("POST", "/embeddings"),
            ("GET", "/nope"),
        ):  # fmt: skip
            assert "API key" in error(await call(router, method, path, {}), 401)
            if path not in ("/chat", "/generate"):
                assert "API key" in error(await call(router, method, path, {}, key=ADMIN_KEY), 401)
        await until(lambda: len(router.fleet.registry.public_models()) == 5)
        names = [m["name"] for m in (await call(router, "GET", "/tags", key=KEY)).json["models"]]
        assert names == ["of-a:latest", "shared:latest", "m"]
        assert "not exist" in error(
            await call(router, "POST", "/show", {"model": "x"}, key=KEY), 404
        )
        reply = await chat(router, model="of-b", key=KEY)
        assert "not exist" in error(reply, 404)
        reply = await call(router, "POST", "/generate", {"model": "of-b"}, key=KEY)
        assert "not exist" in error(reply, 404)


async def test_endpoints_that_a_key_may_not_reach_are_not_told() -> None:
    auth = {"keys": [{"name": "team", "key": KEY, "endpoints": ["b"]}]}
    async with ollamas("a", "b") as endpoints, routing(*endpoints, auth=auth) as router:
        await until(lambda: len(router.fleet.registry.public_models()) == 3)
        names = [m["name"] for m in (await call(router, "GET", "/tags", key=KEY)).json["models"]]
        assert names == ["of-b:latest", "shared:latest"]
        reply = await call(router, "POST", "/show", {"model": "of-a"}, key=KEY)
        assert "not found" in error(reply, 404)


async def test_lists_are_merged() -> None:
    async with (
        ollamas("a", "b") as endpoints,
        Upstream() as upstream,
        routing(*endpoints, endpoint(upstream, "chat", "c"), admin=ADMIN) as router,
    ):
        await until(lambda: len(router.fleet.registry.public_models()) == 4)
        models = {m["name"]: m for m in (await call(router, "GET", "/tags")).json["models"]}
        assert sorted(models) == ["m", "of-a:latest", "of-b:latest", "shared:latest"]
        assert models["of-b:latest"]["size"] == 4_000_000_000
        assert models["m"]["size"] == 0
        assert len(models["m"]["digest"]) == 64
        assert (await call(router, "GET", "/ps")).json == {"models": []}
        for name in ("a", "b"):
            path = f"{router.url}/admin/endpoints/{name}/load"
            headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
            reply = await fetch(router.http, "POST", path, json={"model": "shared"},
                                headers=headers)  # fmt: skip
            assert reply.status == 200, reply.body
        await _becomes(router, [("shared:latest", "a"), ("shared:latest", "b")])


async def _becomes(router: Router, expected: list[tuple[str, str]]) -> None:
    """Wait until this is in memory, in these places."""
    found: list[tuple[str, str]] = []
    for _ in range(80):
        running = (await call(router, "GET", "/ps")).json["models"]
        found = [(m["name"], m["endpoint"]) for m in running]
        if found == expected:
            assert all(m["size_vram"] == 4_000_000_000 for m in running)
            return
        await asyncio.sleep(0.1)
    assert found == expected


async def test_an_endpoint_is_asked_once_however_many_ask() -> None:
    async with (
        Upstream(models=("m",)) as upstream,
        routing(endpoint(upstream, "ollama", models=None)) as router,
    ):
        await until(lambda: router.fleet.registry.find("m"))
        before = len(upstream.probes)
        replies = await asyncio.gather(*(call(router, "GET", "/tags") for _ in range(8)))
        assert [reply.json["models"][0]["name"] for reply in replies] == ["m"] * 8
        assert [probe.path for probe in upstream.probes[before:]] == ["/api/tags"]


async def test_what_an_endpoint_tells_may_be_anything() -> None:
    odd = {
        "size": "large", "digest": 5, "details": None, "modified_at": 1, "size_vram": -0.5,
        "expires_at": [], "context_length": "x",
    }  # fmt: skip
    async with ollamas("a") as endpoints, routing(*endpoints) as router:
        await until(lambda: router.fleet.registry.find("of-a"))
        one = router.fleet.registry.named("a")
        assert one is not None
        body = orjson.dumps({"models": [1, {}, {"name": 5}, {"name": "of-a:latest", **odd}]})
        one.transport = Telling(one.transport, body)
        [told, _] = (await call(router, "GET", "/tags")).json["models"]
        assert (told["name"], told["size"], len(told["digest"])) == ("of-a:latest", 0, 64)
        [told] = (await call(router, "GET", "/ps")).json["models"]
        assert (told["size_vram"], told["context_length"]) == (0, 0)
        shown = await call(router, "POST", "/show", {"model": "of-a"})
        assert shown.json["capabilities"]


class Telling:
    """The transport of an endpoint whose lists are odd."""

    def __init__(self, transport: Transport, body: bytes) -> None:
        self._transport = transport
        self._body = body

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def get(
        self, path: str, timeout: float, *, unversioned: bool = False
    ) -> tuple[int, bytes]:
        """See ``Transport.get``."""
        return 200, self._body


async def test_an_endpoint_that_is_away_tells_nothing_and_holds_nobody_up() -> None:
    async with ollamas("a") as endpoints, Upstream() as upstream:
        gone = endpoint("http://127.0.0.1:9", "ollama", "gone", models=["lost"])
        async with routing(*endpoints, gone, endpoint(upstream, "chat", "c")) as router:
            await until(lambda: len(router.fleet.registry.public_models()) == 4)
            models = {m["name"]: m for m in (await call(router, "GET", "/tags")).json["models"]}
            assert models["lost"]["size"] == 0
            assert models["of-a:latest"]["size"] > 0
            shown = await call(router, "POST", "/show", {"model": "lost"})
            assert shown.json["capabilities"] == ["completion", "tools"]


async def test_what_is_shown_of_models_that_nobody_tells_of() -> None:
    capabilities = {"m": {"vision": True, "reasoning": True, "tools": False}}
    async with Upstream() as upstream:
        one = endpoint(
            upstream, "chat", models=["m", "x-embed"], context_length=4096,
            capabilities=capabilities,
        )  # fmt: skip
        async with routing(one) as router:
            shown = (await call(router, "POST", "/show", {"name": "m", "verbose": False})).json
            assert shown["capabilities"] == ["completion", "vision", "thinking"]
            assert shown["model_info"]["unknown.context_length"] == 4096
            shown = (await call(router, "POST", "/show", {"model": "x-embed"})).json
            assert shown["capabilities"] == ["embedding"]
            assert "'verbose'" in error(
                await call(router, "POST", "/show", {"model": "m", "verbose": 1}), 400
            )


async def test_loading_is_the_routers_own() -> None:
    async with (
        ollamas("a", load_seconds=0.3) as endpoints,
        routing(*endpoints, admin=ADMIN) as router,
    ):
        await until(lambda: router.fleet.registry.find("of-a"))
        reply = await call(router, "POST", "/generate", {"model": "of-a", "keep_alive": "10m"})
        assert reply.json["done_reason"] == "load"
        assert reply.json["response"] == ""
        assert reply.headers["X-Pointsman-Dropped-Parameters"] == "keep_alive"
        assert reply.headers["X-Pointsman-Endpoint"] == "a"
        assert router.deployment("a", "of-a:latest").loaded
        assert any(line["event"] == "model loaded" for line in router.log)
        assert router.rows == []  # nothing was used
        body = {"model": "of-a", "messages": [], "keep_alive": "0s"}
        assert "admin key" in error(await call(router, "POST", "/chat", body), 403)
        assert router.deployment("a", "of-a:latest").loaded
        reply = await call(router, "POST", "/chat", body, key=ADMIN_KEY)
        assert reply.json["done_reason"] == "unload"
        assert not router.deployment("a", "of-a:latest").loaded
        reply = await call(router, "POST", "/chat", {**body, "keep_alive": -1}, key=ADMIN_KEY)
        assert reply.json["done_reason"] == "load"
        assert "X-Pointsman-Dropped-Parameters" not in reply.headers
        said = error(await call(router, "POST", "/chat", {**body, "keep_alive": "soon"}), 400)
        assert "'keep_alive'" in said


async def test_limits_hold() -> None:
    auth = {"keys": [{"name": "team", "key": KEY, "limits": {"requests_per_minute": 1}}]}
    async with Upstream() as upstream, routing(endpoint(upstream, "chat"), auth=auth) as router:
        upstream.default = whole(b"{}")
        await chat(router, key=KEY)
        reply = await chat(router, key=KEY)
        assert error(reply, 429)
        assert reply.headers["Retry-After"]


async def test_the_cache_answers(dialect: Dialect, speech: Speech) -> None:
    async with (
        Upstream() as upstream,
        routing(endpoint(upstream, dialect), cache={"mode": "always"}) as router,
    ):
        upstream.default = whole(speech.whole)
        first = await chat(router)
        again = await chat(router, stream=True)
        assert first.json["message"]["content"] == TEXT
        said = "".join(line["message"]["content"] for line in lines(again))
        assert said == TEXT
        assert (first.headers["X-Cache"], again.headers["X-Cache"]) == ("MISS", "HIT")
        assert len(upstream.requests) == 1
