"""Engines whose template allows one system message, at the beginning, and what agents send."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, Wire, whole

TRANSLATED: tuple[Dialect, ...] = ("chat", "ollama")
STRICT = b'{"error": {"message": "System message must be at the beginning.", "code": 400}}'

CODEX: dict[str, Any] = {
    "instructions": "You are Codex.",
    "input": [
        {"role": "developer", "content": [{"type": "input_text", "text": "<permissions>"}]},
        {"role": "developer", "content": "<apps>"},
        {"role": "user", "content": "Hello"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"role": "developer", "content": "Network is off."},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
    ],
}
FIRST = "You are Codex.\n\n<permissions>\n\n<apps>"
LATE = "Network is off."


def strict(dialect: Dialect) -> Upstream:
    """An engine with such a template."""
    speech = SPEECH[dialect]

    async def script(wire: Wire) -> None:
        asked = wire.request.json
        if any(message["role"] in ("system", "developer") for message in asked["messages"][1:]):
            await whole(STRICT, 400)(wire)
        else:
            await speech.script()(wire)

    return Upstream(default=script)


@asynccontextmanager
async def between(dialect: Dialect, **fields: Any) -> AsyncIterator[tuple[Router, Upstream]]:
    async with (
        strict(dialect) as upstream,
        routing(endpoint(upstream, dialect, **fields)) as router,
    ):
        yield router, upstream


def sent(upstream: Upstream) -> list[tuple[str, Any]]:
    """The role and content of the messages of the last request."""
    messages = upstream.requests[-1].json["messages"]
    return [(message["role"], message["content"] or None) for message in messages]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", TRANSLATED)
async def test_all_are_one_message_by_default(dialect: Dialect, stream: bool) -> None:
    async with between(dialect) as (router, upstream):
        reply = await router.ask(stream=stream, **CODEX)
        assert reply.status == 200, reply.body
        assert sent(upstream) == [
            ("system", f"{FIRST}\n\n{LATE}"),
            ("user", "Hello"),
            ("assistant", None),  # both calls: the message between them ends no turn
            ("tool", "1"),
            ("tool", "2"),
        ]


@pytest.mark.parametrize(("setting", "role"), [("keep", "system"), ("user", "user")])
@pytest.mark.parametrize("dialect", TRANSLATED)
async def test_later_ones_as_the_endpoint_has_it(dialect: Dialect, setting: str, role: str) -> None:
    async with between(dialect, system_messages=setting) as (router, upstream):
        reply = await router.ask(**CODEX)
        assert reply.status == (400 if role == "system" else 200), reply.body
        assert sent(upstream) == [
            ("system", FIRST),
            ("user", "Hello"),
            ("assistant", None),
            ("tool", "1"),
            (role, LATE),
            ("assistant", None),
            ("tool", "2"),
        ]


@pytest.mark.parametrize("dialect", TRANSLATED)
async def test_a_system_message_after_the_users(dialect: Dialect) -> None:
    """As Claude Code sends them: ``role: system`` among the messages."""
    body = {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "You are Claude Code."}],
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "system", "content": "The date has changed."},
            {"role": "user", "content": "Go on."},
        ],
    }
    async with between(dialect) as (router, upstream):
        async with router.http.post(f"{router.url}/v1/messages", data=orjson.dumps(body)) as reply:
            assert reply.status == 200, await reply.text()
        assert sent(upstream) == [
            ("system", "You are Claude Code.\n\nThe date has changed."),
            ("user", "Hello"),
            ("user", "Go on."),
        ]


CHAT = [
    {"role": "developer", "content": "A", "name": "one"},
    {"role": "system", "content": [{"type": "text", "text": "B"}]},
    {"role": "user", "content": "Hello"},
    {"role": "developer", "content": LATE},
]


async def chat(router: Router, messages: list[Any]) -> Reply:
    body = orjson.dumps({"model": "m", "messages": messages})
    async with router.http.post(f"{router.url}/v1/chat/completions", data=body) as reply:
        return Reply(reply.status, reply.headers, await reply.read())


async def test_chat_completions_pass_as_they_are() -> None:
    async with between("chat") as (router, upstream):
        assert (await chat(router, CHAT)).status == 400
        assert upstream.requests[-1].json["messages"] == CHAT


@pytest.mark.parametrize(
    ("setting", "messages"),
    [
        ("merge", [("system", f"A\n\nB\n\n{LATE}"), ("user", "Hello")]),
        ("keep", [("system", "A\n\nB"), ("user", "Hello"), ("system", LATE)]),
        ("user", [("system", "A\n\nB"), ("user", "Hello"), ("user", LATE)]),
    ],
)
async def test_unless_the_endpoint_has_it_set(setting: str, messages: list[Any]) -> None:
    async with between("chat", system_messages=setting) as (router, upstream):
        assert (await chat(router, CHAT)).status == (400 if setting == "keep" else 200)
        assert sent(upstream) == messages


async def test_malformed_messages_are_the_endpoints_to_refuse() -> None:
    odd = [{"role": "system"}, {"role": "system", "content": [{"type": "text"}]}]
    async with between("chat", system_messages="user") as (router, upstream):
        await chat(router, [*CHAT[:1], *odd, *CHAT[2:3]])
        assert upstream.requests[-1].json["messages"] == [
            {"role": "system", "content": "A"},
            *odd,
            CHAT[2],
        ]


@pytest.mark.parametrize("dialect", TRANSLATED)
async def test_chat_completions_in_front_of_ollama(dialect: Dialect) -> None:
    setting = {"system_messages": "merge"} if dialect == "chat" else {}
    async with between(dialect, **setting) as (router, upstream):
        assert (await chat(router, CHAT)).status == 200
        assert sent(upstream) == [("system", f"A\n\nB\n\n{LATE}"), ("user", "Hello")]


async def test_parts_that_are_not_text_stay_parts() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    items = [
        {"role": "system", "content": "Look like this:"},
        {"role": "system", "content": [image]},
        {"role": "user", "content": "Hello"},
    ]
    async with between("chat") as (router, upstream):
        assert (await router.ask(input=items)).status == 200
        assert sent(upstream)[0] == (
            "system",
            [
                {"type": "text", "text": "Look like this:"},
                {"type": "image_url", "image_url": {"url": image["image_url"]}},
            ],
        )
