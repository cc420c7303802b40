"""A coding agent's tools in front of endpoints of every dialect.

The agent gets the calls of its own tools, in their namespaces; the endpoint gets functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.codex import FOUND, request, second_turn
from tests.support.native import answer, call, message
from tests.support.pair import single
from tests.support.reading import in_bytes, ollama, sse
from tests.support.router import Reply, Router
from tests.support.sse import check_responses_stream
from tests.support.upstream import Script, json_answer, streamed, whole

Item = dict[str, Any]
Call = tuple[str, Item]

DROPPED = "X-Pointsman-Dropped-Parameters"

CALLS: Sequence[Call] = (
    ("exec_command", {"cmd": "ls"}),
    ("mcp__depot__echo_text", {"text": "x"}),
    ("apply_patch", {"input": "*** Begin Patch\n"}),
    ("multi_agent_v1__spawn_agent", {"message": "hé"}),
    ("tool_search", {"query": "calendar"}),
    ("mcp__calendar__add", {"title": "t"}),
)


def client_items() -> list[Item]:
    """What the agent gets for ``CALLS``, but for ids."""
    return [
        {"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"ls"}'},
        {
            "type": "function_call",
            "name": "echo_text",
            "namespace": "mcp__depot",
            "arguments": '{"text":"x"}',
        },
        {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch\n"},
        {
            "type": "function_call",
            "name": "spawn_agent",
            "namespace": "multi_agent_v1",
            "arguments": '{"message":"hé"}',
        },
        {"type": "tool_search_call", "execution": "client", "arguments": {"query": "calendar"}},
        {
            "type": "function_call",
            "name": "add",
            "namespace": "mcp__calendar",
            "arguments": '{"title":"t"}',
        },
    ]


def dumped(arguments: Item) -> str:
    return orjson.dumps(arguments).decode()


def chat_stream(size: int) -> Script:
    fragments = []
    for index, (name, arguments) in enumerate(CALLS):
        text = dumped(arguments)
        head = {"index": index, "id": f"call_{index}", "type": "function"}
        fragments.append({**head, "function": {"name": name, "arguments": text[:3]}})
        fragments.append({"index": index, "function": {"arguments": text[3:]}})
    chunks = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [one]}, "finish_reason": None}]}
        for one in fragments
    ]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    return streamed(*in_bytes(sse(*chunks, end), size))


def ollama_stream(size: int) -> Script:
    calls = [{"function": {"name": name, "arguments": given}} for name, given in CALLS]
    lines = ollama(*({"role": "assistant", "content": "", "tool_calls": [one]} for one in calls))
    return streamed(*in_bytes(lines, size), kind="application/x-ndjson")


def native_items() -> list[Item]:
    return [call(name, dumped(given)) for name, given in CALLS]


def native_stream(size: int) -> Script:
    return streamed(*in_bytes(answer(*native_items()), size))


STREAMS = {"chat": chat_stream, "ollama": ollama_stream, "responses": native_stream}
REFUSAL = json_answer(
    {
        "error": {
            "message": "'type' of tool must be 'function'",
            "type": "invalid_request_error",
            "code": None,
            "param": None,
        }
    },
    400,
)


def scripts(dialect: Dialect, script: Script) -> list[Script]:
    """A native endpoint refuses the types at first."""
    return [REFUSAL, script] if dialect == "responses" else [script]


async def asked(router: Router, body: Item) -> Reply:
    async with router.http.post(f"{router.url}/v1/responses", json=body) as reply:
        return Reply(reply.status, reply.headers, await reply.read())


def shown(items: Sequence[Item]) -> list[Item]:
    return [
        {name: value for name, value in item.items() if name not in ("id", "call_id", "status")}
        for item in items
    ]


@pytest.mark.parametrize("dialect", ["chat", "ollama", "responses"])
@pytest.mark.parametrize("size", [7, 100_000])
async def test_calls_come_back_as_the_agents(dialect: Dialect, size: int) -> None:
    async with single(*scripts(dialect, STREAMS[dialect](size)), dialect=dialect) as (router, up):
        reply = await asked(router, second_turn())
        final = check_responses_stream(reply.events)
        assert final["tools"][2]["name"] == "multi_agent_v1"
        assert final["tools"][2]["type"] == "namespace"
        assert shown(final["output"]) == client_items()
        assert len({item["call_id"] for item in final["output"]}) == len(CALLS)
        done = [e.json["item"] for e in reply.events if e.type == "response.output_item.done"]
        assert done == final["output"]
        added = [e.json["item"] for e in reply.events if e.type == "response.output_item.added"]
        for before, after in zip(added, done, strict=True):
            for name in ("id", "type", "call_id", "name", "namespace"):
                assert before.get(name) == after.get(name)
        kinds = {e.json["item_id"]: e.type for e in reply.events if "item_id" in e.json}
        by_id = {item["id"]: item["type"] for item in done}
        assert {by_id[ident] for ident in kinds} == {"function_call", "custom_tool_call"}
        assert reply.headers["X-Pointsman-Attempts"] == "1"
        assert len(up.requests) == len(scripts(dialect, STREAMS[dialect](size)))
        assert reply.headers[DROPPED] == "web_search"


@pytest.mark.parametrize("dialect", ["chat", "ollama", "responses"])
async def test_so_do_those_of_an_answer_in_one_piece(dialect: Dialect) -> None:
    function_calls = [
        {"id": f"call_{name}", "function": {"name": name, "arguments": dumped(given)}}
        for name, given in CALLS
    ]
    said: dict[str, Any] = {
        "chat": {
            "choices": [
                {
                    "message": {"role": "assistant", "content": None, "tool_calls": function_calls},
                    "finish_reason": "tool_calls",
                }
            ]
        },
        "ollama": {
            "message": {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"function": {"name": n, "arguments": a}} for n, a in CALLS],
            },
            "done": True,
            "done_reason": "stop",
        },
        "responses": {"status": "completed", "model": "m", "output": native_items()},
    }
    given = scripts(dialect, json_answer(said[dialect]))
    async with single(*given, dialect=dialect, stream_whole_answers=False) as (router, _):
        reply = await asked(router, second_turn(stream=False))
        assert shown(reply.json["output"]) == client_items()


async def test_what_a_chat_endpoint_is_sent() -> None:
    async with single(chat_stream(100_000)) as (router, upstream):
        await asked(router, second_turn())
        [sent] = upstream.requests
        assert [tool["function"]["name"] for tool in sent.json["tools"]] == [
            "exec_command",
            "apply_patch",
            "multi_agent_v1__spawn_agent",
            "multi_agent_v1__wait_agent",
            "mcp__depot__echo_text",
            "mcp__calendar__add",
            "tool_search",
        ]
        assert "client_metadata" not in sent.json
        messages = sent.json["messages"]
        # Strict templates refuse a second system message, and one that is not the first.
        roles = ["system", "user", "user", "assistant", "tool", "assistant", "tool"]
        assert [one["role"] for one in messages] == [*roles, "assistant", "tool"]
        assert messages[0]["content"].startswith("You are a coding agent.\n\n<skills_")
        calls = [one["tool_calls"][0]["function"] for one in messages if "tool_calls" in one]
        assert [one["name"] for one in calls] == [
            "mcp__depot__echo_text", "apply_patch", "tool_search"
        ]  # fmt: skip
        assert messages[-1]["content"].endswith("- mcp__calendar__add: Adds an event.")


async def test_what_a_native_endpoint_is_sent_once_it_has_refused() -> None:
    good = streamed(answer(message("Hi")))
    async with single(REFUSAL, good, good, dialect="responses") as (router, upstream):
        for _ in range(2):
            reply = await asked(router, second_turn())
            final = check_responses_stream(reply.events)
            assert final["output_text"] == "Hi"
            assert final["tools"][3]["type"] == "namespace"
        first, second, third = (one.json for one in upstream.requests)
        assert [tool["type"] for tool in first["tools"]][2] == "namespace"
        assert first["input"][4]["phase"] == "commentary"
        assert second == third
        assert {tool["type"] for tool in second["tools"]} == {"function"}
        names = {item.get("type") for item in second["input"]}
        assert names == {"message", "function_call", "function_call_output"}
        text = orjson.dumps(second)
        for word in (b"phase", b"defer_loading", b'"namespace"', b"client_metadata", b"web_search"):
            assert word not in text


async def test_who_knows_the_types_is_sent_them() -> None:
    async with single(streamed(answer(message("Hi"))), dialect="responses") as (router, upstream):
        reply = await asked(router, second_turn())
        assert check_responses_stream(reply.events)["output_text"] == "Hi"
        assert DROPPED not in reply.headers
        [sent] = upstream.requests
        body = second_turn()
        assert sent.json["tools"] == body["tools"]
        assert sent.json["input"][-1] == body["input"][-1]
        assert sent.json["input"][4]["phase"] == "commentary"


@pytest.mark.parametrize(
    "refusals",
    [
        [(500, "unsupported tool type: namespace")],
        [(422, "Input tag 'namespace' found using 'type' does not match any of the expected tags: "
          "'function', 'custom', 'web_search'")],
        [(400, "Unknown type of tool: custom"), (400, "Unknown type of tool: namespace"),
         (400, "Unknown type of tool: web_search")],
    ],
)  # fmt: skip
async def test_refusals_in_several_words(refusals: list[tuple[int, str]]) -> None:
    given = [json_answer({"error": {"message": said}}, status) for status, said in refusals]
    good = streamed(answer(call("mcp__depot__echo_text", "{}")))
    async with single(*given, good, good, dialect="responses") as (router, upstream):
        for _ in range(2):
            final = check_responses_stream((await asked(router, request())).events)
            assert final["output"][0]["namespace"] == "mcp__depot"
        assert len(upstream.requests) == len(refusals) + 2


async def test_a_request_that_is_refused_for_something_else_is_not_asked_again() -> None:
    refused = json_answer({"error": {"message": "Unsupported value: 'temperature'."}}, 400)
    async with single(refused, dialect="responses") as (router, upstream):
        reply = await asked(router, request())
        assert (reply.status, reply.error["message"]) == (400, "Unsupported value: 'temperature'.")
        assert len(upstream.requests) == 1


async def test_requests_without_such_tools_are_as_before() -> None:
    good = streamed(answer(message("Hi")))
    async with single(REFUSAL, good, good, dialect="responses") as (router, upstream):
        await asked(router, request())
        plain = {"model": "m", "input": "hi", "stream": True, "tools": request()["tools"][:1]}
        await asked(router, plain)
        assert upstream.requests[-1].json["tools"] == plain["tools"]
        assert upstream.requests[-1].json["input"] == "hi"


async def test_a_custom_call_that_is_told_in_its_item_only() -> None:
    item = call("apply_patch", '{"input":"x"}')
    events = [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "arguments": ""},
        },
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed", "output": [item]}},
    ]
    good = whole(
        b"".join(b"data: %b\n\n" % orjson.dumps(one) for one in events), kind="text/event-stream"
    )
    async with single(REFUSAL, good, dialect="responses") as (router, _):
        reply = await asked(router, request())
        final = check_responses_stream(reply.events)
        assert shown(final["output"]) == [
            {"type": "custom_tool_call", "name": "apply_patch", "input": "x"}
        ]
        types = [event.type for event in reply.events]
        assert types.count("response.custom_tool_call_input.delta") == 1
        assert types.count("response.custom_tool_call_input.done") == 1


async def test_a_chain_goes_on_after_a_search() -> None:
    """The stored items have OpenAI's shape, whatever the endpoint speaks."""
    search = sse(
        {
            "choices": [
                {
                    "index": 0,
                    "delta": {
                        "tool_calls": [
                            {
                                "index": 0,
                                "id": "call_s",
                                "function": {"name": "tool_search", "arguments": '{"query":"c"}'},
                            }
                        ]
                    },
                    "finish_reason": "tool_calls",
                }
            ]
        }
    )
    async with single(streamed(search), chat_stream(50)) as (router, upstream):
        first = check_responses_stream((await asked(router, request(store=True))).events)
        [item] = first["output"]
        assert item["type"] == "tool_search_call"
        output = {
            "type": "tool_search_output",
            "call_id": item["call_id"],
            "execution": "client",
            "status": "completed",
            "tools": [FOUND],
        }
        body = request(store=True, previous_response_id=first["id"])
        reply = await asked(router, {**body, "input": [output]})
        final = check_responses_stream(reply.events)
        assert shown(final["output"]) == client_items()
        sent = upstream.requests[-1].json
        assert [one["role"] for one in sent["messages"]][-2:] == ["assistant", "tool"]
        assert "mcp__calendar__add" in {tool["function"]["name"] for tool in sent["tools"]}
        async with router.http.get(
            f"{router.url}/v1/responses/{final['id']}/input_items", params={"order": "asc"}
        ) as listed:
            items = (await listed.json())["data"]
        assert [one["type"] for one in items] == ["tool_search_output"]
        assert items[0]["tools"] == [FOUND]


async def test_what_the_configuration_says_is_not_tried() -> None:
    good = streamed(answer(*native_items()))
    stated = {"*": {"openai_tools": False}}
    async with single(good, dialect="responses", capabilities=stated) as (router, upstream):
        final = check_responses_stream((await asked(router, second_turn())).events)
        assert shown(final["output"]) == client_items()
        [sent] = upstream.requests
        assert {tool["type"] for tool in sent.json["tools"]} == {"function", "web_search"}


async def test_what_is_configured_to_be_there_stays() -> None:
    stated = {"*": {"openai_tools": True}}
    async with single(REFUSAL, dialect="responses", capabilities=stated) as (router, upstream):
        body = second_turn()
        reply = await asked(router, {**body, "tools": body["tools"][:-1]})
        assert reply.status == 400
        assert len(upstream.requests) == 1
