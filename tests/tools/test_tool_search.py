"""Searches over deferred tools that the router runs: for models whose endpoint has none."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from router.tools.hosted import HostedCall
from router.tools.tool_search.deferred import DeferredTools
from tests.support.calling_model import Said, outputs_of
from tests.support.exchanges import an_exchange
from tests.support.tool_stage import stage
from tests.support.upstream import Received

Item = dict[str, Any]

DIALECTS: tuple[Dialect, ...] = ("chat", "ollama")


def function(name: str, description: str, **more: Any) -> Item:
    parameters = {"type": "object", "properties": {"id": {"description": f"Of the {name}"}}}
    made = {"type": "function", "name": name, "description": description, "parameters": parameters}
    return {**made, "defer_loading": True, **more}


CRM = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [
        function("find_customer", "Looks a customer up by name."),
        function("list_invoices", "Lists the invoices of a customer."),
        function("delete_customer", "Deletes a customer."),
    ],
}
WEATHER = function("getForecast", "Weather of the next days.")
SEARCH = {"type": "tool_search"}
TOOLS = [function("now", "The time.", defer_loading=False), CRM, WEATHER, SEARCH]


def offered(request: Received) -> list[str]:
    return [tool["function"]["name"] for tool in request.json.get("tools", [])]


def searches_then_calls(request: Received) -> Said:
    """Searches, and calls what is found by the name under which it is offered."""
    if outputs := outputs_of(request):
        assert "crm__list_invoices" in outputs[-1]
        assert "crm__list_invoices" in offered(request)
        return [("crm__list_invoices", {"id": "1"})]
    return [("tool_search", {"query": "invoice list", "limit": 1})]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_model_finds_a_tool_and_calls_it(dialect: Dialect, stream: bool) -> None:
    async with stage(searches_then_calls, dialect) as on:
        response = await on.ask(TOOLS, stream=stream)
        search, found, call = response["output"]
        assert search["type"] == "tool_search_call"
        assert (search["execution"], search["call_id"]) == ("server", None)
        assert search["arguments"] == {"query": "invoice list", "limit": 1}
        assert found["type"] == "tool_search_output"
        assert found["tools"] == [{**CRM, "tools": [CRM["tools"][1]]}]
        assert (call["type"], call["namespace"], call["name"]) == (
            "function_call", "crm", "list_invoices"
        )  # fmt: skip
        first, second = on.upstream.requests
        assert offered(first) == ["now", "tool_search"]
        assert offered(second) == ["now", "crm__list_invoices", "tool_search"]


async def test_the_next_request_goes_on_with_what_was_found() -> None:
    def says(request: Received) -> Said:
        if len(outputs_of(request)) == 2:
            return ["Paid."]
        return searches_then_calls(request)

    async with stage(says) as on:
        first = await on.ask(TOOLS)
        output = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"]}
        items = [{**output, "output": "[]"}]
        chained = await on.ask(TOOLS, input=items, previous_response_id=first["id"])
        assert chained["output_text"] == "Paid."
        question = {"type": "message", "role": "user", "content": "Go"}
        resent = await on.ask(TOOLS, input=[question, *first["output"], *items])
        assert resent["output_text"] == "Paid."
        *_, by_chain, by_history = on.upstream.requests
        assert offered(by_chain) == ["now", "crm__list_invoices", "tool_search"]
        assert by_chain.json["messages"][1:] == by_history.json["messages"][1:]


async def test_a_choice_of_the_search() -> None:
    async with stage(searches_then_calls) as on:
        await on.ask(TOOLS, tool_choice={"type": "tool_search"})
        first, second = on.upstream.requests
        assert first.json["tool_choice"] == {
            "type": "function",
            "function": {"name": "tool_search"},
        }
        assert "tool_choice" not in second.json


async def test_past_the_bound_nothing_more_is_loaded() -> None:
    def searches(request: Received) -> Said:
        if "tool_search" not in offered(request):
            return ["I give up."]
        return [("tool_search", {"query": "find customer", "limit": 1})]

    async with stage(searches, tools={"max_turns": 3}) as on:
        response = await on.ask(TOOLS)
        assert response["output_text"] == "I give up."
        assert offered(on.upstream.requests[-1]) == ["now", "crm__find_customer"]


async def test_calls_beyond_those_allowed_find_nothing() -> None:
    def searches(request: Received) -> Said:
        if outputs_of(request):
            return ["So be it."]
        return [("tool_search", {"query": q}) for q in ("customer", "weather")]

    async with stage(searches) as on:
        response = await on.ask(TOOLS, max_tool_calls=1)
        assert response["output_text"] == "So be it."
        assert outputs_of(on.upstream.requests[-1])[-1] == "No tools were found."


async def test_a_clients_own_function_of_that_name_is_the_clients() -> None:
    def calls(request: Received) -> Said:
        return [("tool_search", {"query": "x"})]

    async with stage(calls) as on:
        response = await on.ask([function("tool_search", "Mine.", defer_loading=False), *TOOLS])
        [call] = response["output"]
        assert (call["type"], call["name"]) == ("function_call", "tool_search")
        assert "crm__find_customer" in offered(on.upstream.requests[0])


async def test_a_search_of_the_clients_is_the_clients() -> None:
    def calls(request: Received) -> Said:
        return [("tool_search", {"query": "x"})]

    async with stage(calls) as on:
        response = await on.ask([*TOOLS[:-1], {**SEARCH, "execution": "client"}])
        [call] = response["output"]
        assert (call["type"], call["execution"]) == ("tool_search_call", "client")
        assert call["call_id"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"query": "weather"}, ["getForecast"]),
        ({"query": "forecasts"}, ["getForecast"]),
        ({"query": "delete a customer", "limit": 1}, ["delete_customer"]),
        ({"query": "customers"}, ["delete_customer", "find_customer", "list_invoices"]),
        (
            {"query": "customers", "limit": -1},
            ["delete_customer", "find_customer", "list_invoices"],
        ),
        ({"query": "zeppelin"}, []),
        ({}, []),
        ("invoices", ["list_invoices"]),
    ],
)
async def test_what_is_found(arguments: Any, found: list[str]) -> None:
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    search = DeferredTools(3, TOOLS, an_exchange().compute)
    result = await search.run(HostedCall("c", "tool_search", text), 0)
    assert result.tools is not None
    names = [
        member["name"]
        for tool in result.tools
        for member in (tool["tools"] if tool["type"] == "namespace" else [tool])
    ]
    assert sorted(names) == found
