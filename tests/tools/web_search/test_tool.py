"""The function that a model is offered, and its calls."""

from __future__ import annotations

from typing import Any

import jsonschema
import orjson
import pytest

from router.dialects.responses.tools import check_tools
from tests.tools.web_search.world import later, options, run, service, web_search

ANSWER = {"results": [{"url": "https://a.test/1", "title": "One", "content": "text"}]}


async def test_what_is_offered() -> None:
    async with web_search() as tool:
        offered = tool.offered()
    check_tools([offered], "tools")
    assert (offered["type"], offered["name"]) == ("function", "web_search")
    schema = offered["parameters"]
    jsonschema.Draft202012Validator.check_schema(schema)
    for call in (
        {"action": "search", "query": "x"},
        {"action": "open_page", "url": "https://a.test", "start": 100},
        {"action": "find_in_page", "url": "https://a.test", "pattern": "x"},
    ):
        jsonschema.validate(call, schema)
    assert "[title](url)" in offered["description"]


async def test_the_model_is_told_where_the_user_is() -> None:
    said = options(user_location={"city": "Rome", "country": "it", "timezone": "Europe/Rome"})
    async with web_search() as tool:
        description = tool.offered(said)["description"]
        assert description.endswith(
            " The user is in Rome, IT. The user's time zone is Europe/Rome."
        )
        assert "The user" not in tool.offered(options())["description"]


async def test_no_pages_are_offered_where_none_may_be_opened() -> None:
    async with web_search(open_pages=False) as tool:
        assert tool.offered()["parameters"]["properties"]["action"]["enum"] == ["search"]
        outcome = await run(tool, action="open_page", url="https://a.test")
        assert outcome.error == "invalid_arguments"
        assert outcome.reason == "The action must be 'search'."


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("", "no valid JSON"),
        ("{", "no valid JSON"),
        ("[]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("{}", "The action must be"),
        ('{"action": "delete"}', "The action must be"),
        ('{"action": ["search"]}', "The action must be"),
        ('{"action": "search"}', "'query' must be a text"),
        ('{"action": "search", "query": "  "}', "'query' must be a text"),
        ('{"action": "search", "query": 7}', "'query' must be a text"),
        ('{"action": "search", "query": "' + "x" * 1001 + '"}', "no longer than 1000"),
        ('{"action": "open_page"}', "'url' must be a text"),
        ('{"action": "open_page", "url": "' + "x" * 5000 + '"}', "no longer than 4096"),
        ('{"action": "open_page", "url": "https://a.test", "start": -1}', "'start' must be"),
        ('{"action": "open_page", "url": "https://a.test", "start": "1"}', "'start' must be"),
        ('{"action": "open_page", "url": "https://a.test", "start": true}', "'start' must be"),
        ('{"action": "find_in_page", "url": "https://a.test"}', "'pattern' must be"),
    ],
)
async def test_bad_arguments_are_an_error_for_the_model(arguments: str, reason: str) -> None:
    async with web_search() as tool:
        outcome = await tool.run(options(), arguments, deadline=later())
        assert outcome.error == "invalid_arguments"
        assert reason in outcome.text
        assert outcome.text.startswith("Error: ")
        assert (
            outcome.action
            == tool.action(arguments)
            == {"type": "search", "query": "", "queries": []}
        )


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ({"query": " x "}, {"type": "search", "query": "x", "queries": ["x"]}),
        ({"url": "https://a.test"}, {"type": "open_page", "url": "https://a.test"}),
        (
            {"url": "https://a.test", "pattern": "p"},
            {"type": "find_in_page", "url": "https://a.test", "pattern": "p"},
        ),
        (
            {"action": "search", "query": "x", "url": None, "pattern": "", "start": 0},
            {"type": "search", "query": "x", "queries": ["x"]},
        ),
    ],
)
async def test_calls_that_leave_something_out_are_understood(
    arguments: dict[str, Any], action: dict[str, Any]
) -> None:
    async with web_search() as tool:
        assert tool.action(orjson.dumps(arguments).decode()) == action


async def test_no_more_calls_than_the_request_allows() -> None:
    async with service(ANSWER) as served, web_search(served.url) as tool:
        said = options(max_uses=2)
        outcomes = [await run(tool, said, used=used, query="x") for used in range(4)]
    assert [one.error for one in outcomes] == [None, None, "max_uses_exceeded", "max_uses_exceeded"]
    assert len(served.asked) == 2
    assert "Answer with what you have." in outcomes[2].text


async def test_nothing_is_asked_where_the_request_wants_no_live_access() -> None:
    async with service(ANSWER) as served, web_search(served.url) as tool:
        said = options(external_web_access=False)
        outcomes = [await run(tool, said, query="x"), await run(tool, said, url="https://a.test")]
    assert [one.error for one in outcomes] == ["not_allowed", "not_allowed"]
    assert served.asked == []


async def test_the_deadline_of_the_call_holds_for_a_search() -> None:
    async with service(ANSWER) as served, web_search(served.url) as tool:
        outcome = await tool.run(options(), '{"query": "x"}', deadline=later(-1))
    assert outcome.error == "timeout"
    assert outcome.reason == "The time for the call is over."


async def test_closing_twice() -> None:
    async with service(ANSWER) as served, web_search(served.url) as tool:
        await run(tool, query="x")
        await tool.close()
