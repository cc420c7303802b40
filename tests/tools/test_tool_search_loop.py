"""Anthropic's tool search, run by the router for a model on an endpoint of any dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from router.settings.schema import Dialect
from tests.support.anthropic import check_message
from tests.support.calling_model import Said, asked_tools, calling, outputs_of
from tests.support.fleet import OPENAI_STYLE, routed
from tests.support.upstream import Received, Upstream

JSON = dict[str, Any]

REGEX: Any = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
BM25: Any = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
USER: Any = {"role": "user", "content": "Weather in Rome?"}
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def later(name: str, description: str) -> JSON:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {
        "name": name,
        "description": description,
        "input_schema": schema,
        "defer_loading": True,
    }


DEFERRED: list[Any] = [
    later("get_weather", "The weather in a city"),
    later("send_mail", "Sends a mail"),
    later("get_time", "The time in a city"),
]


def searches(call: tuple[str, JSON]) -> Callable[[Received], Said]:
    """A model that searches, calls what it has found, and says what came of that."""

    def answer(request: Received) -> Said:
        outputs = outputs_of(request)
        if not outputs:
            return ["Let me see.", call]
        if "get_weather" in asked_tools(request) and len(outputs) == 1:
            return [("get_weather", {"city": "Rome"})]
        return [outputs[-1]]

    return answer


@asynccontextmanager
async def asking(
    answer: Callable[[Received], Said], dialect: Dialect = "chat", **settings: Any
) -> AsyncIterator[tuple[AsyncAnthropic, Upstream]]:
    async with Upstream(default=calling(dialect, answer)) as model:
        endpoint = {"name": "one", "dialect": dialect, "models": ["m"]}
        endpoint["url"] = model.address + ("" if dialect == "ollama" else "/v1")
        async with (
            routed(endpoint, **settings) as url,
            AsyncAnthropic(base_url=url, api_key="sk-key", max_retries=0) as client,
        ):
            yield client, model


async def asked(
    client: AsyncAnthropic, tools: Sequence[Any], messages: Sequence[Any], *, stream: bool
) -> Any:
    fields: Any = {"model": "m", "max_tokens": 100, "tools": tools, "messages": messages}
    if not stream:
        message = await client.beta.messages.create(**fields)
    else:
        async with client.beta.messages.stream(**fields) as streamed:
            message = await streamed.get_final_message()
    check_message(message.to_dict(mode="json", exclude_unset=True, exclude_none=True))
    return message


@STREAM
@pytest.mark.parametrize("dialect", OPENAI_STYLE)
@pytest.mark.parametrize(
    ("tool", "given"),
    [(REGEX, {"pattern": "(?i)WEATHER"}), (BM25, {"query": "what is the weather"})],
    ids=["regex", "bm25"],
)
async def test_a_tool_is_found_called_and_stays(
    dialect: Dialect, tool: Any, given: JSON, *, stream: bool
) -> None:
    async with asking(searches((tool["name"], given)), dialect) as (client, model):
        tools = [tool, *DEFERRED]
        message = await asked(client, tools, [USER], stream=stream)
        assert message.stop_reason == "tool_use"
        text, use, result, call = message.content
        assert (text.type, text.text) == ("text", "Let me see.")
        assert (use.type, use.name, use.input) == ("server_tool_use", tool["name"], given)
        assert use.id.startswith("srvtoolu_")
        assert (result.type, result.tool_use_id) == ("tool_search_tool_result", use.id)
        found = [reference.tool_name for reference in result.content.tool_references]
        assert found[0] == "get_weather"
        assert (call.type, call.name, call.input) == ("tool_use", "get_weather", {"city": "Rome"})
        first, second = map(asked_tools, model.requests)
        assert first == [tool["name"]]
        assert second == [tool["name"], *found]

        answer = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
        said = [USER, message.to_param(), {"role": "user", "content": [answer]}]
        message = await asked(client, tools, said, stream=stream)
        assert [(block.type, block.text) for block in message.content] == [("text", "sunny")]
        third = model.requests[2]
        assert asked_tools(third) == second
        # The model is told of the search in the same words, so that its prompt begins alike.
        assert outputs_of(third)[0] == outputs_of(model.requests[1])[0]


@STREAM
async def test_a_pattern_that_is_none_is_told_to_the_model(*, stream: bool) -> None:
    async with asking(searches((REGEX["name"], {"pattern": "("}))) as (client, model):
        message = await asked(client, [REGEX, *DEFERRED], [USER], stream=stream)
        result = message.content[2]
        assert result.content.type == "tool_search_tool_result_error"
        assert result.content.error_code == "invalid_tool_input"
        assert message.content[3].text.startswith("Error: The pattern is not valid")
        said = [USER, message.to_param(), USER]
        await asked(client, [REGEX, *DEFERRED], said, stream=stream)
        assert outputs_of(model.requests[2])[0] == outputs_of(model.requests[1])[0]


async def test_a_search_and_a_call_of_the_clients_own_in_one_turn() -> None:
    own: Any = {k: v for k, v in later("own", "").items() if k != "defer_loading"}

    def both(request: Received) -> Said:
        if not outputs_of(request):
            return [("own", {"city": "A"}), (BM25["name"], {"query": "weather"})]
        return [" | ".join(outputs_of(request))]

    async with asking(both) as (client, model):
        tools = [BM25, own, *DEFERRED]
        message = await asked(client, tools, [USER], stream=False)
        kinds = [block.type for block in message.content]
        assert kinds == ["tool_use", "server_tool_use", "tool_search_tool_result"]
        assert message.stop_reason == "tool_use"
        answer = {"type": "tool_result", "tool_use_id": message.content[0].id, "content": "done"}
        said = [USER, message.to_param(), {"role": "user", "content": [answer]}]
        message = await asked(client, tools, said, stream=False)
        assert "done" in message.content[0].text
        assert asked_tools(model.requests[1]) == [BM25["name"], "own", "get_weather"]


async def test_the_last_turn_has_what_was_found_and_no_search() -> None:
    def never_done(request: Received) -> Said:
        if BM25["name"] in asked_tools(request):
            return [(BM25["name"], {"query": "weather"})]
        return [("get_weather", {"city": "Rome"})]

    async with asking(never_done, tools={"max_turns": 3}) as (client, model):
        message = await asked(client, [BM25, *DEFERRED], [USER], stream=False)
        assert message.content[-1].name == "get_weather"
        assert asked_tools(model.requests[-1]) == ["get_weather"]
        assert len(model.requests) == 3


async def test_the_same_again_with_a_cache() -> None:
    answer = searches((BM25["name"], {"query": "weather"}))
    async with asking(answer, cache={"mode": "always"}) as (client, _):
        first = await asked(client, [BM25, *DEFERRED], [USER], stream=False)
        again = await asked(client, [BM25, *DEFERRED], [USER], stream=True)
        kinds = [block.type for block in first.content]
        assert [block.type for block in again.content] == kinds
        assert kinds == ["text", "server_tool_use", "tool_search_tool_result", "tool_use"]
        # What else there is to be found makes another request of it.
        other = await asked(client, [BM25, *DEFERRED[1:]], [USER], stream=False)
        found: Any = other.content[2]
        assert [one.tool_name for one in found.content.tool_references] == []


async def test_a_key_without_tools_may_search_its_own() -> None:
    key = {"name": "ann", "key": "sk-key", "tools": []}
    answer = searches((BM25["name"], {"query": "weather"}))
    async with asking(answer, auth={"keys": [key]}) as (client, _):
        message = await asked(client, [BM25, *DEFERRED], [USER], stream=False)
        assert message.content[-1].name == "get_weather"


async def test_tokens_are_counted_without_what_is_deferred() -> None:
    async with asking(lambda _: ["Hi"]) as (client, _):
        fields: Any = {"model": "m", "messages": [USER]}
        many: Any = [later(f"tool_{n}", "Does much. " * 50) for n in range(20)]
        all_of_them: Any = [{**tool, "defer_loading": False} for tool in many]
        one = await client.messages.count_tokens(**fields, tools=[BM25, *many])
        other = await client.messages.count_tokens(**fields, tools=all_of_them)
        assert one.input_tokens * 5 < other.input_tokens
