"""The response cache, where the router runs a request's tools itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anthropic
import openai
import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.calling_model import Said, calling, outputs_of
from tests.support.fleet import DIALECTS, http_client, routed
from tests.support.order import check_order, parse_sse
from tests.support.tool_server import McpCalls, mcp_server
from tests.support.upstream import Received, Upstream, json_answer

JSON = dict[str, Any]

PAGE = "https://example.com/yards"
FOUND = {"results": [{"title": "Yards", "url": PAGE, "content": "All about yards."}]}
SEARCH = ("web_search", {"action": "search", "query": "yards"})
TOLD = f"Much is known of yards ([Yards]({PAGE}))."
TOOLS: list[Any] = [{"type": "mcp", "server_label": "m"}, {"type": "web_search"}]
OWN = ("id", "created_at", "completed_at", "output")


def works(request: Received) -> Said:
    """Calls a tool of either kind, one after the other; then it answers."""
    calls: list[Any] = [("m__add", {"a": 1, "b": 2}), SEARCH]
    asked = len(outputs_of(request))
    return [TOLD] if asked == len(calls) else ["Hm. ", calls[asked]]


@asynccontextmanager
async def caching(
    dialect: Dialect = "chat",
    *,
    tools: tuple[str, ...] = ("web_search", "mcp:m"),
    scope: str = "key",
    answer: Any = works,
    **sections: Any,
) -> AsyncIterator[tuple[str, aiohttp.ClientSession, Upstream, McpCalls]]:
    calls = McpCalls()
    async with (
        mcp_server(calls, "http") as server,
        Upstream(default=calling(dialect, answer)) as model,
        Upstream(on_get=json_answer(FOUND)) as service,
        http_client() as http,
    ):
        endpoint = {"name": "one", "dialect": dialect, "models": ["m"]}
        endpoint["url"] = model.address + ("" if dialect == "ollama" else "/v1")
        search = {"provider": "searxng", "url": service.address, "open_pages": False}
        run = {"run": {"web_search": "router"}, "web_search": search}
        run["mcp"] = {"servers": [{"label": "m", "url": server}]}
        cache = {"mode": "always", "scope": scope, "tools": list(tools)}
        async with routed(endpoint, tools=run, cache=cache, **sections) as url:
            yield url, http, model, calls


async def ask(
    http: aiohttp.ClientSession, url: str, *, key: str | None = None, **fields: Any
) -> tuple[aiohttp.ClientResponse, JSON]:
    body = {"model": "m", "input": "Go", "tools": TOOLS, **fields}
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with http.post(f"{url}/v1/responses", json=body, headers=headers) as answer:
        data = await answer.read()
    if answer.status == 200 and fields.get("stream"):
        return answer, check_order(parse_sse(data))
    said: JSON = orjson.loads(data)
    return answer, said


def content(response: JSON) -> JSON:
    items = [{**item, "id": None} for item in response["output"]]
    return {"items": items, **{k: v for k, v in response.items() if k not in OWN}}


@pytest.mark.parametrize("first", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_answer_of_tools_is_given_again(dialect: Dialect, first: bool) -> None:
    async with caching(dialect) as (url, http, model, calls):
        miss, original = await ask(http, url, stream=first)
        asked, called = len(model.requests), len(calls)
        for stream in (False, True):
            hit, again = await ask(http, url, stream=stream)
            assert hit.headers["X-Cache"] == "HIT"
            assert content(again) == content(original)
            assert again["id"] != original["id"]
        assert (len(model.requests), len(calls)) == (asked, called)
    assert miss.headers["X-Cache"] == "MISS"
    kinds = [item["type"] for item in original["output"]]
    assert [kind for kind in kinds if kind != "message"] == [
        "mcp_list_tools",
        "mcp_call",
        "web_search_call",
    ]
    [citation] = original["output"][-1]["content"][0]["annotations"]
    assert citation["url"] == PAGE


async def test_those_who_ask_at_once_share_the_tools() -> None:
    async with caching() as (url, http, model, calls):
        answers = await asyncio.gather(*(ask(http, url, stream=n % 2 == 0) for n in range(4)))
        texts = {
            orjson.dumps(content(response), option=orjson.OPT_SORT_KEYS) for _, response in answers
        }
        assert (len(texts), len(calls), len(model.requests)) == (1, 1, 3)


async def test_another_question_is_not_answered_by_a_similar_one() -> None:
    async with caching() as (url, http, _, calls):
        await ask(http, url, input="How long is a yard of a ship?")
        other, _ = await ask(http, url, input="How long is the yard of a ship?")
        assert (other.headers["X-Cache"], len(calls)) == ("MISS", 2)


@pytest.mark.parametrize("tools", [(), ("web_search",), ("mcp:m",)])
async def test_all_of_a_requests_tools_have_to_be_named(tools: tuple[str, ...]) -> None:
    async with caching(tools=tools) as (url, http, _, calls):
        for _ in range(2):
            answer, _ = await ask(http, url)
            assert answer.headers["X-Cache-Reason"] == "server_tools"
        assert len(calls) == 2


@pytest.mark.parametrize(
    "own",
    [{"headers": {"X-Who": "me"}}, {"authorization": "mine"}, {"server_url": "http://127.0.0.1:9"}],
    ids=lambda own: next(iter(own)),
)
async def test_servers_of_the_clients_own_are_never_cached(own: JSON) -> None:
    async with caching() as (url, http, _, _):
        answer, _ = await ask(http, url, tools=[{**TOOLS[0], **own}, TOOLS[1]])
        assert answer.headers["X-Cache-Reason"] == "server_tools"


def fails_first(request: Received) -> Said:
    return [TOLD] if outputs_of(request) else [("m__fail", {})]


async def test_an_answer_after_a_failed_call_is_not_kept() -> None:
    async with caching(answer=fails_first) as (url, http, _, _):
        for _ in range(2):
            answer, response = await ask(http, url)
            assert response["output"][1]["status"] == "failed"
            assert answer.headers["X-Cache"] == "MISS"


async def test_a_request_for_approval_is_not_kept() -> None:
    async with caching() as (url, http, _, _):
        for _ in range(2):
            tool = {**TOOLS[0], "require_approval": "always"}
            answer, response = await ask(http, url, tools=[tool, TOOLS[1]])
            assert response["output"][-1]["type"] == "mcp_approval_request"
            assert answer.headers["X-Cache"] == "MISS"


async def test_a_key_without_the_tool_is_given_no_ones_answer() -> None:
    keys = [
        {"name": "may", "key": "sk-may", "tools": ["mcp", "web_search:searxng"]},
        {"name": "may-not", "key": "sk-not", "tools": ["web_search"]},
    ]
    async with caching(scope="shared", auth={"keys": keys}) as (url, http, _, _):
        for expected in ("MISS", "HIT"):
            answer, _ = await ask(http, url, key="sk-may")
            assert answer.headers["X-Cache"] == expected
        refused, body = await ask(http, url, key="sk-not")
        assert (refused.status, body["error"]["code"]) == (403, "tool_not_allowed")


async def test_the_official_clients_are_given_it_again() -> None:
    async with caching() as (url, _, model, _):
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k") as client:
            seen = []
            for _ in range(2):
                async with client.responses.stream(model="m", input="Go", tools=TOOLS) as stream:
                    seen.append([event.type async for event in stream])
            assert len(model.requests) == 3
            assert seen[1].count("response.mcp_call.completed") == 1
            assert seen[1].count("response.web_search_call.completed") == 1
        async with anthropic.AsyncAnthropic(base_url=url, api_key="k") as client:
            tool: Any = {"type": "web_search_20250305", "name": "web_search"}
            messages: Any = [{"role": "user", "content": "Go"}]
            said = [
                await client.messages.create(
                    model="m", max_tokens=100, messages=messages, tools=[tool]
                )
                for _ in range(2)
            ]
            assert said[0].content == said[1].content
