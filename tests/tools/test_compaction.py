"""Conversations that the router compacts for endpoints which cannot."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.calling_model import Said
from tests.support.compacting import (
    SUMMARY,
    Compacting,
    compacting,
    compaction_of,
    is_for_a_summary,
    messages_of,
    texts_of,
    upstream_of,
)
from tests.support.fleet import DIALECTS
from tests.support.schema import faults
from tests.support.sse import parse_events
from tests.support.upstream import Received

pytestmark = pytest.mark.parametrize("dialect", DIALECTS)

JSON = dict[str, Any]

LONG = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "I am Ann. " + "I want a boat. " * 400},
    {"role": "assistant", "content": "Noted. " * 400},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sea " * 400},
    {"role": "assistant", "content": "There is a sea."},
    {"role": "user", "content": "What is my name?"},
]
"""Some 2600 tokens."""

MANAGED = [{"type": "compaction", "compact_threshold": 2000}]
TRIGGER = {"type": "compaction_trigger"}


def kinds(response: JSON) -> list[str]:
    return [item["type"] for item in response["output"]]


def summaries(on: Compacting) -> list[Received]:
    return [request for request in on.upstream.requests if is_for_a_summary(request)]


async def test_a_conversation_is_compacted_and_goes_on(dialect: Dialect) -> None:
    async with compacting(dialect) as on:
        compacted = await on.compact(input=LONG, instructions="You sell boats.")
        assert faults("CompactResource", compacted) == []
        assert kinds(compacted) == ["message", "message", "message", "compaction"]
        assert [item.get("role") for item in compacted["output"][:3]] == [
            "developer", "user", "user",
        ]  # fmt: skip
        assert compacted["usage"]["total_tokens"] == 15
        compaction_of(compacted["output"])
        [asked] = summaries(on)
        assert "sea sea" in str(asked.json)
        assert "You sell boats." in str(asked.json)
        assert not asked.json.get("stream") or dialect != "responses"

        answer = await on.ask(input=[*compacted["output"], {"role": "user", "content": "And?"}])
        assert answer["output_text"] == "Ann"
        told = texts_of(on.upstream.requests[-1])
        assert SUMMARY in told[-2]
        assert "sea sea" not in str(told)
        assert "compaction" not in {
            item.get("type") for item in messages_of(on.upstream.requests[-1])
        }


async def test_a_summary_of_a_summary(dialect: Dialect) -> None:
    async with compacting(dialect) as on:
        first = await on.compact(input=LONG)
        second = await on.compact(input=[*first["output"], {"role": "user", "content": "And?"}])
        assert kinds(second).count("compaction") == 1
        assert any(SUMMARY in text for text in texts_of(summaries(on)[-1])[:-1])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_trigger_makes_one_item(dialect: Dialect, stream: bool) -> None:
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    async with compacting(dialect) as on:
        response = await on.ask(
            input=[*LONG, TRIGGER], stream=stream, store=False, tools=tools, tool_choice="auto"
        )
        item = compaction_of(response["output"])
        assert kinds(response) == ["compaction"]
        assert (response["status"], response["usage"]["total_tokens"]) == ("completed", 15)
        assert len(on.upstream.requests) == 1
        again = await on.ask(input=[LONG[1], item, LONG[-1]], stream=stream)
        assert again["output_text"] == "Ann"


async def test_a_trigger_is_told_as_events(dialect: Dialect) -> None:
    async with compacting(dialect) as on:
        _, body, _ = await on.post("/responses", {"input": [*LONG, TRIGGER], "stream": True})
        assert [event.type for event in parse_events(body)] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.output_item.done",
            "response.completed",
        ]


async def test_a_trigger_in_a_chain(dialect: Dialect) -> None:
    async with compacting(dialect) as on:
        first = await on.ask(input=LONG)
        second = await on.ask(input=[TRIGGER], previous_response_id=first["id"])
        assert kinds(second) == ["compaction"]
        third = await on.ask(input="And?", previous_response_id=second["id"])
        assert third["output_text"] == "Ann"
        told = texts_of(on.upstream.requests[-1])
        assert "sea sea" not in str(told)
        assert told[-1] == "And?"


@pytest.mark.parametrize("stream", [False, True])
async def test_past_the_threshold_it_is_compacted_on_the_way(
    dialect: Dialect, stream: bool
) -> None:
    async with compacting(dialect) as on:
        response = await on.ask(input=LONG, context_management=MANAGED, stream=stream)
        assert kinds(response) == ["compaction", "message"]
        assert response["output_text"] == "Ann"
        assert response["usage"]["total_tokens"] == 30
        assert len(on.upstream.requests) == 2
        sent = on.upstream.requests[-1]
        assert "context_management" not in sent.json
        told = texts_of(sent)
        assert told[-1] == "What is my name?"
        assert SUMMARY in told[-2]
        assert "Noted." not in str(told)
        stored = await on.ask(input="Sure?", previous_response_id=response["id"], stream=stream)
        assert stored["output_text"] == "Ann"
        assert texts_of(on.upstream.requests[-1])[: len(told)] == told


async def test_below_the_threshold_nothing_happens(dialect: Dialect) -> None:
    async with compacting(dialect) as on:
        threshold = [{"type": "compaction", "compact_threshold": 100_000}]
        for managed in (threshold, [{"type": "compaction"}]):
            response = await on.ask(input=LONG, context_management=managed)
            assert kinds(response) == ["message"]
        assert len(on.upstream.requests) == 2


async def test_without_a_threshold_it_is_a_part_of_the_context(dialect: Dialect) -> None:
    abilities = {"models": ["m"], "context_length": 3000}
    async with compacting(dialect, endpoint=abilities) as on:
        response = await on.ask(input=LONG, context_management=[{"type": "compaction"}])
        assert kinds(response) == ["compaction", "message"]


async def test_a_conversation_that_a_summary_makes_no_shorter(dialect: Dialect) -> None:
    async with compacting(dialect) as on:
        response = await on.ask(input="word " * 4000, context_management=MANAGED)
        assert kinds(response) == ["message"]


async def test_a_conversation_object(dialect: Dialect) -> None:
    async with compacting(dialect) as on:
        _, body, _ = await on.post("/conversations", {"items": LONG[:-1]})
        ident = orjson.loads(body)["id"]
        response = await on.ask(
            input="What is my name?", conversation=ident, context_management=MANAGED
        )
        assert kinds(response) == ["compaction", "message"]
        again = await on.ask(input="Sure?", conversation=ident, context_management=MANAGED)
        assert kinds(again) == ["message"]
        assert again["output_text"] == "Ann"
        assert len(summaries(on)) == 1


async def test_a_background_run(dialect: Dialect) -> None:
    async with compacting(dialect) as on:
        for body, expected in (
            ({"input": LONG, "context_management": MANAGED}, ["compaction", "message"]),
            ({"input": [*LONG, TRIGGER]}, ["compaction"]),
        ):
            queued = await on.ask(**body, background=True)
            found = await on.finished(queued["id"])
            assert found["status"] == "completed", found
            assert kinds(found) == expected


async def test_another_tenants_summary_is_not_there(dialect: Dialect) -> None:
    async with compacting(dialect) as on:
        compacted = await on.compact(input=LONG)
        error = await on.refused(key="sk-bob", input=compacted["output"])
        assert (error["status"], error["code"]) == (400, "invalid_encrypted_content")
        assert error["param"] == "input[3].encrypted_content"
        tampered = [*compacted["output"][:-1], dict(compacted["output"][-1])]
        content = tampered[-1]["encrypted_content"]
        tampered[-1]["encrypted_content"] = (
            content[:-2] + ("A" if content[-2] != "A" else "B") + content[-1]
        )
        for path in ("/responses", "/responses/compact", "/responses/input_tokens"):
            assert await on.refused(path, input=tampered) == error


async def test_a_summary_counts_as_what_it_says(dialect: Dialect) -> None:
    async with compacting(dialect) as on:
        compacted = await on.compact(input=LONG)
        _, whole, _ = await on.post("/responses/input_tokens", {"input": LONG})
        _, less, _ = await on.post("/responses/input_tokens", {"input": compacted["output"]})
        assert orjson.loads(less)["input_tokens"] < orjson.loads(whole)["input_tokens"] - 1000


async def test_a_trigger_has_to_be_the_last_item(dialect: Dialect) -> None:
    async with compacting(dialect) as on:
        error = await on.refused(input=[TRIGGER, *LONG])
        assert (error["status"], error["code"], error["param"]) == (
            400, "invalid_value", "input[0]",
        )  # fmt: skip


@pytest.mark.parametrize("threshold", [999, "many", 0.5, True])
async def test_a_threshold_that_is_none(dialect: Dialect, threshold: Any) -> None:
    async with compacting(dialect) as on:
        managed = [{"type": "compaction", "compact_threshold": threshold}]
        error = await on.refused(input=LONG, context_management=managed)
        assert error["status"] == 400
        assert error["param"] == "context_management[0].compact_threshold"


def says_nothing(request: Received) -> Said:
    return [""] if is_for_a_summary(request) else ["Who?"]


async def test_a_summary_that_fails(dialect: Dialect) -> None:
    async with upstream_of(dialect, says_nothing) as upstream, compacting(dialect, upstream) as on:
        error = await on.refused("/responses/compact", input=LONG)
        assert (error["status"], error["code"]) == (502, "upstream_error")
        for stream in (False, True):
            error = await on.refused(input=[*LONG, TRIGGER], stream=stream)
            assert (error["status"], error["code"]) == (502, "upstream_error")
        status, body, headers = await on.post(
            "/responses", {"input": LONG, "context_management": MANAGED}
        )
        assert (status, headers["X-Pointsman-Compaction"]) == (200, "failed")
        assert b'"compaction"' not in body
        assert "sea sea" in str(on.upstream.requests[-1].json)


async def test_another_model_writes_the_summaries(dialect: Dialect) -> None:
    more = {"models": ["m", "small"]}
    async with compacting(dialect, endpoint=more, compaction={"model": "small"}) as on:
        reasoning = {"effort": "high"}
        await on.ask(input=LONG, context_management=MANAGED, reasoning=reasoning)
        summary, answer = on.upstream.requests
        assert (summary.json["model"], answer.json["model"]) == ("small", "m")
        assert "high" not in str(summary.json)


async def test_the_router_does_not_compact_where_it_may_not(dialect: Dialect) -> None:
    async with compacting(dialect, compaction={"run": "endpoint"}) as on:
        error = await on.refused("/responses/compact", input=LONG)
        assert error["status"] == 501
        assert not summaries(on)


async def test_tools_of_the_router_run_beside(dialect: Dialect) -> None:
    """A server that is not allowed is an error wherever its tools are asked for."""
    tool = {"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:9/mcp"}
    settings: JSON = {"tools": {"run": {"mcp": "router"}}, "fetch": {"hosts": ["127.0.0.1"]}}
    async with compacting(dialect, **settings) as on:
        response = await on.ask(input=[*LONG, TRIGGER], tools=[tool])
        assert kinds(response) == ["compaction"]
        error = await on.refused(input=LONG, context_management=MANAGED, tools=[tool])
        assert error["code"] == "external_connector_error", error
