"""Conversations stay at one of several endpoints that are equally loaded, whoever tells of them:
clients that resend everything, and those that name their session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support.anthropic import VERSION
from tests.support.fetch import fetch
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream
from tests.support.waiting import until

ENDPOINTS = ("one", "two", "three", "four")
FIELDS = {"aliases": {"claude-*": "m"}, "max_in_flight": 2}
CONVERSATIONS = 8
"""By chance all of them would stay once in 65 000 times."""

SYSTEM = "You are a helpful assistant."

AGENT = "You are a coding agent.\n" + "Answer in Markdown, and be exact. " * 40
"""So long that it counts as a beginning of its own."""


@pytest.fixture
async def router() -> AsyncIterator[Router]:
    async with AsyncExitStack() as stack:
        endpoints = []
        for name in ENDPOINTS:
            upstream = await stack.enter_async_context(Upstream(default=SPEECH["chat"].script()))
            endpoints.append(endpoint(upstream, "chat", name, **FIELDS))
        router = await stack.enter_async_context(routing(*endpoints))
        await until(lambda: all(e.probed.is_set() for e in router.fleet.registry.endpoints))
        yield router


async def post(router: Router, path: str, body: dict[str, Any], **headers: str) -> Reply:
    reply = await fetch(router.http, "POST", router.url + path, json=body, headers=headers)
    assert reply.status == 200, reply.body
    return reply


def by(reply: Reply) -> str:
    return reply.headers["X-Pointsman-Endpoint"]


def message(role: str, text: str) -> dict[str, Any]:
    """A message as Open WebUI's Responses connections write it."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def open_webui_responses(turns: list[tuple[str, str]]) -> dict[str, Any]:
    """Its request with this history: the stored output of earlier turns comes back without ids."""
    items = [message(role, text) for role, text in turns]
    body = {"model": "m", "stream": True, "input": items, "instructions": SYSTEM}
    tool = {"type": "function", "name": "search_web", "parameters": {"type": "object"}}
    return {**body, "tools": [tool], "temperature": 0.7}


def open_webui_chat(turns: list[tuple[str, str]]) -> dict[str, Any]:
    """Its request with this history, to a Chat Completions connection."""
    messages = [{"role": "system", "content": SYSTEM}]
    messages += [{"role": role, "content": text} for role, text in turns]
    return {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": messages,
    }


@pytest.mark.parametrize(
    ("path", "request_of"),
    [("/v1/responses", open_webui_responses), ("/v1/chat/completions", open_webui_chat)],
    ids=["responses", "chat"],
)
async def test_open_webui_resends_everything_and_stays(
    router: Router, path: str, request_of: Any
) -> None:
    histories = [[("user", f"Question {n} to begin with")] for n in range(CONVERSATIONS)]
    places = [[by(await post(router, path, request_of(turns)))] for turns in histories]
    for turn in range(3):
        for turns, seen in zip(histories, places, strict=True):
            turns += [("assistant", "Hello, wörld!"), ("user", f"And then, {turn}?")]
            seen.append(by(await post(router, path, request_of(turns))))
    assert [set(seen) for seen in places] == [{seen[0]} for seen in places]
    assert len({seen[0] for seen in places}) > 1, "the load is spread"


async def test_a_session_stays_when_its_history_begins_anew(router: Router) -> None:
    """As after a compaction: nothing of the history is left but the instructions, which all
    sessions share. They were last at the endpoint of the last session.
    """

    async def ask(session: int, text: str, agent: str = "") -> str:
        body: dict[str, Any] = {"model": "claude-x", "max_tokens": 9, "system": AGENT}
        body["messages"] = [{"role": "user", "content": text}]
        headers = {"x-claude-code-session-id": f"session-{session}", **VERSION}
        if agent:
            headers |= {"x-claude-code-agent-id": agent, "x-claude-code-parent-agent-id": "main"}
        return by(await post(router, "/v1/messages", body, **headers))

    first = []
    for n in range(CONVERSATIONS):
        place = ENDPOINTS[n % len(ENDPOINTS)]
        with router.occupied(*(name for name in ENDPOINTS if name != place)):
            first.append(await ask(n, f"Question {n}"))
        assert first[-1] == place
    again = [await ask(n, f"A summary of {n}") for n in range(CONVERSATIONS)]
    agents = [await ask(n, f"A task of {n}", "explorer") for n in range(CONVERSATIONS)]
    assert first == again == agents
    row = router.rows[-1]
    assert row.session == (f"session-{CONVERSATIONS - 1}", "explorer", "main")
    assert row.tags == ()
    async with router.http.get(router.url + "/metrics") as metrics:
        assert "session-" not in await metrics.text()


@pytest.mark.parametrize(
    ("headers", "body", "session"),
    [
        ({"session-id": "s1", "thread-id": "s1"}, {}, ("s1", "", "")),
        (
            {"session-id": "s1", "thread-id": "t2", "x-codex-parent-thread-id": "s1"},
            {"prompt_cache_key": "k"},
            ("s1", "t2", "s1"),
        ),
        ({"session_id": "s1"}, {}, ("s1", "", "")),
        ({"conversation_id": "s1"}, {}, ("s1", "", "")),
        ({"x-openwebui-chat-id": "s1"}, {}, ("s1", "", "")),
        ({}, {"prompt_cache_key": "k"}, ("k", "", "")),
        ({"thread-id": "t2"}, {}, ("", "", "")),
        ({"session-id": "x" * 129}, {}, ("", "", "")),
        ({"session-id": "a b,c"}, {}, ("", "", "")),
        ({"x-claude-code-session-id": "a", "session-id": "b"}, {}, ("a", "", "")),
    ],
)
async def test_what_names_a_session(
    router: Router, headers: dict[str, str], body: dict[str, Any], session: tuple[str, str, str]
) -> None:
    await post(router, "/v1/responses", {"model": "m", "input": "hi", **body}, **headers)
    assert router.rows[-1].session == session
