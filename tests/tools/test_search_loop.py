"""Web search by the router, for a model on an endpoint of any dialect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import anthropic
import orjson
import pytest

from router.endpoints.registry import Registry
from router.fetch.guard import FetchGuard
from router.settings.fetch import FetchSettings
from router.settings.schema import Dialect
from router.settings.tools import ToolsSettings
from router.tools.offers import ToolOffers
from tests.support.anthropic import check_message
from tests.support.calling_model import Said, asked_tools, calling, outputs_of
from tests.support.fleet import DIALECTS, http_client, routed
from tests.support.order import check_order, parse_sse
from tests.support.upstream import Received, Upstream, json_answer

JSON = dict[str, Any]

PAGE = "https://example.com/yards"
FOUND = {"results": [{"title": "Yards", "url": PAGE, "content": "All about yards."}]}
SEARCH = ("web_search", {"action": "search", "query": "yards"})
TOLD = f"Much is known of yards ([Yards]({PAGE}))."


def searches(request: Received) -> Said:
    return [TOLD] if outputs_of(request) else [SEARCH]


@asynccontextmanager
async def searching(
    dialect: Dialect = "chat", **settings: Any
) -> AsyncIterator[tuple[str, aiohttp.ClientSession, Upstream, Upstream]]:
    """A router that may search, and its client, model and search service."""
    async with (
        Upstream(default=calling(dialect, searches)) as model,
        Upstream(on_get=json_answer(FOUND)) as service,
        http_client() as http,
    ):
        search = {"provider": "searxng", "url": service.address, "open_pages": False, **settings}
        endpoint = {"name": "one", "dialect": dialect, "models": ["m"]}
        endpoint["url"] = model.address + ("" if dialect == "ollama" else "/v1")
        tools = {"run": {"web_search": "router"}, "web_search": search}
        async with routed(endpoint, tools=tools) as url:
            yield url, http, model, service


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["web_search", "web_search_preview", "web_search_2025_08_26"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_router_searches_and_the_answer_cites(
    dialect: Dialect, kind: str, stream: bool
) -> None:
    async with searching(dialect) as (url, http, model, service):
        body = {"model": "m", "input": "Yards?", "tools": [{"type": kind}], "stream": stream}
        body["include"] = ["web_search_call.action.sources"]
        async with http.post(f"{url}/v1/responses", json=body) as answer:
            data = await answer.read()
        assert answer.status == 200, data
        response: JSON = check_order(parse_sse(data)) if stream else orjson.loads(data)
        search, message = response["output"]
        assert (search["type"], search["status"]) == ("web_search_call", "completed")
        assert search["action"]["query"] == "yards"
        assert search["action"]["sources"] == [{"type": "url", "url": PAGE}]
        [citation] = message["content"][0]["annotations"]
        assert citation["url"] == PAGE
        assert TOLD[citation["start_index"] : citation["end_index"]] == f"([Yards]({PAGE}))"
        assert "All about yards." in outputs_of(model.requests[1])[0]
        assert len(service.probes) == 1


async def test_sources_are_told_to_those_that_ask_for_them() -> None:
    async with searching() as (url, http, _, _):
        body = {"model": "m", "input": "Yards?", "tools": [{"type": "web_search"}]}
        async with http.post(f"{url}/v1/responses", json=body) as answer:
            response = await answer.json()
        assert "sources" not in response["output"][0]["action"]


async def test_pages_of_other_domains_are_not_shown() -> None:
    async with searching() as (url, http, model, _):
        tool = {"type": "web_search", "filters": {"allowed_domains": ["example.org"]}}
        body = {"model": "m", "input": "Yards?", "tools": [tool]}
        async with http.post(f"{url}/v1/responses", json=body) as answer:
            response = await answer.json()
        assert "All about yards." not in outputs_of(model.requests[1])[0]
        assert response["output"][1]["content"][0]["annotations"] == []


async def test_a_search_that_fails_is_told_to_the_model() -> None:
    async with searching() as (url, http, model, service):
        service.on_get = json_answer({"error": "down"}, 500)
        body = {"model": "m", "input": "Yards?", "tools": [{"type": "web_search"}]}
        async with http.post(f"{url}/v1/responses", json=body) as answer:
            response = await answer.json()
        assert response["output"][0]["status"] == "failed"
        assert response["status"] == "completed"
        assert outputs_of(model.requests[1])[0].startswith("Error: ")


async def test_without_a_service_the_tool_is_dropped_and_named() -> None:
    async with (
        Upstream(default=calling("chat", lambda _: ["No search"])) as model,
        http_client() as http,
        routed(
            {"name": "one", "dialect": "chat", "models": ["m"], "url": model.address + "/v1"}
        ) as url,
    ):
        body = {"model": "m", "input": "Yards?", "tools": [{"type": "web_search"}]}
        async with http.post(f"{url}/v1/responses", json=body) as answer:
            assert answer.headers["X-Pointsman-Dropped-Parameters"] == "web_search"
        assert asked_tools(model.requests[0]) == []


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropics_search_is_served_by_the_same(stream: bool) -> None:
    tool: Any = {"type": "web_search_20250305", "name": "web_search", "max_uses": 1}
    async with (
        searching() as (url, _, model, _),
        anthropic.AsyncAnthropic(base_url=url, api_key="sk", max_retries=0) as client,
    ):
        asked: Any = {"model": "m", "max_tokens": 100, "tools": [tool]}
        asked["messages"] = [{"role": "user", "content": "Yards?"}]
        message: Any
        if stream:
            async with client.messages.stream(**asked) as streamed:
                message = await streamed.get_final_message()
        else:
            message = await client.messages.create(**asked)
        texts = [block.text for block in message.content if block.type == "text"]
        assert "".join(texts) == TOLD
        assert message.stop_reason == "end_turn"
        assert message.usage.server_tool_use is not None
        assert message.usage.server_tool_use.web_search_requests == 1
        assert len(model.requests) == 2
        check_message(message.to_dict(mode="json"))
        use, result, text = message.content
        assert (use.type, use.name, use.input) == (
            "server_tool_use",
            "web_search",
            {"query": "yards"},
        )
        assert result.type == "web_search_tool_result"
        assert result.tool_use_id == use.id
        [page] = result.content
        assert (page.url, page.title) == (PAGE, "Yards")
        [citation] = text.citations
        assert (citation.type, citation.url) == ("web_search_result_location", PAGE)
        assert citation.cited_text == "All about yards."
        asked["messages"] += [message.to_param(), {"role": "user", "content": "And more?"}]
        await client.messages.create(**asked)
        sent = model.requests[2].json["messages"]
        assert [one["role"] for one in sent] == ["user", "assistant", "tool", "assistant", "user"]
        assert "All about yards." in sent[2]["content"]
        assert sent[1]["tool_calls"][0]["function"]["name"] == "web_search"


async def test_anthropics_search_that_fails_says_so_in_its_result() -> None:
    tool: Any = {"type": "web_search_20250305", "name": "web_search"}
    async with (
        searching() as (url, _, _, service),
        anthropic.AsyncAnthropic(base_url=url, api_key="sk", max_retries=0) as client,
    ):
        service.on_get = json_answer({"error": "down"}, 500)
        said: Any = [{"role": "user", "content": "Yards?"}]
        asked: Any = {"model": "m", "max_tokens": 100, "tools": [tool], "messages": said}
        message = await client.messages.create(**asked)
        check_message(message.to_dict(mode="json"))
        result: Any = message.content[1]
        assert (result.type, result.content.error_code) == ("web_search_tool_result", "unavailable")
        await client.messages.create(**{**asked, "messages": [*said, message.to_param(), *said]})


async def test_a_reload_closes_the_former_search_once_its_time_is_over() -> None:
    found = {"provider": "searxng", "url": "http://127.0.0.1:1", "open_pages": False}
    before = ToolsSettings.model_validate({"web_search": found, "timeout": 0.01})
    after = ToolsSettings.model_validate({"web_search": {**found, "max_results": 3}})
    offers = ToolOffers(before, cast("Registry", None), FetchGuard(FetchSettings()))
    former = offers.search
    assert former is not None
    closed = asyncio.Event()
    former.close = lambda: _set(closed)  # type: ignore[method-assign]
    offers.configure(after)
    assert offers.search is not former
    await asyncio.wait_for(closed.wait(), 30)
    await offers.close()


async def _set(event: asyncio.Event) -> None:
    event.set()
