"""Chat Completions towards endpoints that have no such route, or a lesser one."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.admin import explained
from tests.support.explain_routing import fleet, left_out
from tests.support.router import Reply, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Script, Upstream, Wire, streamed, whole

CHAT = "/v1/chat/completions"
SAYS_NO = whole(b"404 page not found", 404, kind="text/plain")
NO_MODEL = whole(b'{"error":{"message":"The model `m` does not exist"}}', 404)
ONLY_RESPONSES = whole(
    b'{"error":{"message":"This model is only supported in v1/responses and not in '
    b'v1/chat/completions.","param":"model"}}',
    404,
)
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def speaking(dialect: Dialect, chat: Script = SAYS_NO) -> Upstream:
    """An upstream that answers in its dialect, and ``chat`` to Chat Completions."""
    speech = SPEECH[dialect]

    async def script(wire: Wire) -> None:
        await (chat if wire.request.path == CHAT else speech.script())(wire)

    return Upstream(default=script)


def paths(upstream: Upstream) -> list[str]:
    """Where it was asked since the last look."""
    asked = [request.path for request in upstream.requests]
    upstream.requests.clear()
    return asked


def text(reply: Reply) -> str:
    """What a chat client is told."""
    assert reply.status == 200, reply.body
    if reply.headers["Content-Type"].startswith("application/json"):
        return str(reply.json["choices"][0]["message"]["content"])
    assert reply.events[-1].raw == b"[DONE]"
    chunks = [orjson.loads(event.raw) for event in reply.events[:-1]]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_route_that_is_not_there_is_learned(status: int, stream: bool) -> None:
    no = whole(b"not here", status, kind="text/plain")
    async with (
        speaking("responses", no) as upstream,
        routing(endpoint(upstream, "responses")) as router,
    ):
        for asked in ([CHAT, "/v1/responses"], ["/v1/responses"]):
            reply = await router.ask(chat=True, stream=stream)
            assert text(reply) == SPEECH["responses"].text
            assert reply.headers["X-Pointsman-Attempts"] == "1"
            assert paths(upstream) == asked
        assert [row.outcome for row in router.rows] == ["ok", "ok"]
        assert [row.tokens.input for row in router.rows] == [7, 7]
        # Another model is asked for in the same way: it is the route that is not there.
        assert router.deployment().breaker.opens_until == 0


async def test_a_model_that_has_responses_only() -> None:
    async with (
        speaking("responses", ONLY_RESPONSES) as upstream,
        routing(endpoint(upstream, "responses", models=["m", "other"])) as router,
    ):
        for _ in range(2):
            assert text(await router.ask(chat=True)) == SPEECH["responses"].text
        assert text(await router.ask(chat=True, model="other")) == SPEECH["responses"].text
        native = "/v1/responses"
        assert paths(upstream) == [CHAT, native, native, CHAT, native]


async def test_a_model_that_is_not_there_teaches_nothing() -> None:
    async with (
        speaking("responses", NO_MODEL) as upstream,
        routing(endpoint(upstream, "responses")) as router,
    ):
        for _ in range(2):
            reply = await router.ask(chat=True)
            assert (reply.status, reply.error["code"]) == (404, "model_not_found")
        assert paths(upstream) == [CHAT, CHAT]


async def test_what_was_learned_by_mistake_is_forgotten() -> None:
    async with (
        Upstream(default=SAYS_NO) as upstream,
        routing(endpoint(upstream, "responses")) as router,
    ):
        for _ in range(2):
            assert (await router.ask(chat=True)).status == 404
        assert paths(upstream) == 2 * [CHAT, "/v1/responses"]


@pytest.mark.parametrize(
    ("dialect", "setting", "path"),
    [
        ("responses", "auto", CHAT),
        ("responses", "native", CHAT),
        ("responses", "translated", "/v1/responses"),
        ("ollama", "auto", "/api/chat"),
        ("ollama", "translated", "/api/chat"),
        ("ollama", "native", CHAT),
        ("chat", "auto", CHAT),
        ("chat", "native", CHAT),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_setting(dialect: Dialect, setting: str, path: str, stream: bool) -> None:
    spoken = SPEECH["chat"]
    native = streamed(*spoken.pieces, kind=spoken.kind) if stream else whole(spoken.whole)
    async with (
        speaking(dialect, native) as upstream,
        routing(endpoint(upstream, dialect, chat_completions=setting)) as router,
    ):
        assert text(await router.ask(chat=True, stream=stream)) == spoken.text
        assert paths(upstream) == [path]


async def test_a_route_that_has_to_be_there_is_not_done_without() -> None:
    async with (
        speaking("responses") as upstream,
        routing(endpoint(upstream, "responses", chat_completions="native")) as router,
    ):
        assert (await router.ask(chat=True)).status == 404
        assert paths(upstream) == [CHAT]


async def test_ollama_is_told_of_the_context() -> None:
    async with (
        speaking("ollama") as upstream,
        routing(endpoint(upstream, "ollama", num_ctx=4096, keep_alive="1h")) as router,
    ):
        reply = await router.ask(chat=True, stop="x", tools=[WEATHER], max_tokens=9)
        assert text(reply) == SPEECH["ollama"].text
        assert "X-Pointsman-Dropped-Parameters" not in reply.headers
        [asked] = upstream.requests
        assert asked.json["options"] == {"stop": ["x"], "num_predict": 9, "num_ctx": 4096}
        assert (asked.json["keep_alive"], asked.json["truncate"]) == ("1h", False)
        assert asked.json["tools"] == [
            {
                "type": "function",
                "function": {"name": "weather", "parameters": {"type": "object"}, "strict": False},
            }
        ]


LEFT_OUT = {"n": 2, "logit_bias": {"1": 2}, "odd\r\nname": 1, "verbosity": "low", "stop": None}


@pytest.mark.parametrize(
    ("dialect", "dropped"),
    [
        ("responses", "n, logit_bias, odd??name"),
        ("ollama", "verbosity, n, logit_bias, odd??name"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_left_out_is_named(dialect: Dialect, dropped: str, stream: bool) -> None:
    async with (
        speaking(dialect) as upstream,
        routing(endpoint(upstream, dialect, chat_completions="translated")) as router,
    ):
        reply = await router.ask(chat=True, stream=stream, **LEFT_OUT)
        assert text(reply) == SPEECH[dialect].text
        assert reply.headers["X-Pointsman-Dropped-Parameters"] == dropped


STRICT: dict[str, Any] = {"server": {"unsupported": "strict"}}


async def test_or_refused() -> None:
    async with (
        speaking("ollama") as upstream,
        routing(endpoint(upstream, "ollama"), **STRICT) as router,
    ):
        reply = await router.ask(chat=True, n=2)
        assert (reply.status, reply.error["code"], reply.error["param"]) == (
            400,
            "unsupported_parameter",
            "n",
        )
        tools = [{"type": "function", "name": "f"}, {"type": "web_search"}]
        reply = await router.ask(tools=tools)
        assert (reply.status, reply.error["param"]) == (400, "tools[1]")
        assert upstream.requests == []
        assert router.rows == []
        assert text(await router.ask(chat=True, n=1)) == SPEECH["ollama"].text


async def test_or_sent_to_an_endpoint_that_can_carry_it() -> None:
    able = whole(SPEECH["chat"].whole)
    async with (
        speaking("ollama") as one,
        speaking("chat", able) as two,
        routing(endpoint(one, "ollama", "a"), endpoint(two, "chat", "b"), **STRICT) as router,
    ):
        for _ in range(3):
            reply = await router.ask(chat=True, n=2)
            assert reply.headers["X-Pointsman-Endpoint"] == "b"
            assert "X-Pointsman-Dropped-Parameters" not in reply.headers
        assert one.requests == []


async def test_what_is_refused_once_the_route_is_known_to_be_missing() -> None:
    """It is found out in the midst of an attempt that what was to be passed on must be left out."""
    async with (
        speaking("responses") as upstream,
        routing(endpoint(upstream, "responses"), **STRICT) as router,
    ):
        for asked in ([CHAT], []):
            reply = await router.ask(chat=True, seed=1)
            assert (reply.status, reply.error["param"]) == (400, "seed")
            assert paths(upstream) == asked
        assert sum(row.tokens.input + row.tokens.output for row in router.rows) == 0


@pytest.mark.parametrize(
    ("dialect", "content", "param"),
    [
        (
            "ollama",
            [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}],
            "messages[0].content[0].image_url.url",
        ),
        ("ollama", [{"type": "video"}], "messages[0].content[0].type"),
        ("responses", [{"type": "video"}], "messages[0].content[0].type"),
    ],
)
async def test_a_fault_is_named_in_the_chats_words(
    dialect: Dialect, content: Any, param: str
) -> None:
    async with (
        speaking(dialect) as upstream,
        routing(endpoint(upstream, dialect, chat_completions="translated")) as router,
    ):
        reply = await router.ask(chat=True, input=content)
        assert (reply.status, reply.error["param"]) == (400, param)
        assert upstream.requests == []


async def test_so_is_one_that_the_endpoint_finds() -> None:
    fault = {"message": "Too small.", "param": "max_output_tokens", "code": "invalid_value"}
    async with (
        Upstream(default=whole(orjson.dumps({"error": fault}), 400)) as upstream,
        routing(endpoint(upstream, "responses", chat_completions="translated")) as router,
    ):
        reply = await router.ask(chat=True, max_completion_tokens=1)
        assert (reply.status, reply.error["param"]) == (400, "max_completion_tokens")


@pytest.mark.parametrize("dialect", ["responses", "ollama"])
async def test_what_a_model_cannot_do_is_known_of_chats_too(dialect: Dialect) -> None:
    capabilities = {"m": {"tools": False, "context_length": 100}}
    async with (
        speaking(dialect) as upstream,
        routing(
            endpoint(upstream, dialect, chat_completions="translated", capabilities=capabilities)
        ) as router,
    ):
        reply = await router.ask(chat=True, tools=[WEATHER])
        assert (reply.error["code"], reply.error["param"]) == ("unsupported_feature", "tools")
        reply = await router.ask(chat=True, input="word " * 200)
        assert (reply.status, reply.error["param"]) == (400, "messages")
        assert upstream.requests == []


@pytest.mark.parametrize("dialect", ["responses", "ollama"])
async def test_it_is_explained_as_it_is_sent(dialect: Dialect) -> None:
    settings = {"chat_completions": "translated"}
    request = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": 2}
    async with fleet(settings, dialect=dialect) as (router, [upstream]):
        told = (await explained(router, request))["request"]
        assert upstream.requests == []
        reply = await router.ask(chat=True, n=2)
        [sent] = upstream.requests
        assert (told["body"], told["answer_headers"]) == (
            sent.json,
            {"X-Pointsman-Dropped-Parameters": "n"},
        )
        assert SPEECH[dialect].prefix + told["path"] == sent.path
        assert reply.headers["X-Pointsman-Dropped-Parameters"] == "n"
    async with fleet(settings, dialect=dialect, **STRICT) as (router, [upstream]):
        told = await explained(router, request)
        assert told["request"] is None
        assert left_out(told) == {"e0": "unsupported_dialect"}
