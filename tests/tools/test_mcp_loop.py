"""Tools of real MCP servers, run by the router for a model on an endpoint of any dialect."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.calling_model import asked_tools, outputs_of
from tests.support.fleet import DIALECTS
from tests.support.tool_server import TOKEN
from tests.support.tool_stage import ADD, Answer, adds_twice, kinds, once, stage
from tests.support.waiting import until

JSON = dict[str, Any]

SERVER: JSON = {
    "label": "m",
    "command": sys.executable,
    "args": ["-m", "tests.support.tool_server"],
    "env": {"PYTHONPATH": str(Path(__file__).parents[2])},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_calls_are_run_and_the_model_goes_on(
    dialect: Dialect, transport: str, stream: bool
) -> None:
    async with stage(adds_twice, dialect, transport=transport, token=True) as on:
        response = await on.ask([on.tool(authorization=TOKEN)], stream=stream)
        assert kinds(response) == ["mcp_list_tools", "message", "mcp_call", "mcp_call", "message"]
        assert response["status"] == "completed"
        assert response["output_text"] == "Adding. Sums: 3, 7"
        assert response["usage"]["total_tokens"] == 30
        listed, _, first, second, _ = response["output"]
        assert {tool["name"] for tool in listed["tools"]} >= {"add", "fail"}
        assert [first["output"], second["output"]] == ["3", "7"]
        assert first["error"] is None
        assert sorted(on.calls) == [("add", (1, 2)), ("add", (3, 4))]
        shown = response["tools"][0]
        assert shown["server_label"] == "m"
        assert "authorization" not in shown


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_chain_keeps_the_items_and_does_not_list_again(dialect: Dialect) -> None:
    async with stage(adds_twice, dialect) as on:
        first = await on.ask()
        second = await on.ask(input="Again", previous_response_id=first["id"])
        assert kinds(second) == ["message"]  # the history has outputs, so the model only talks
        assert outputs_of(on.upstream.requests[-1]) == ["3", "7"]
        stored = await (await on.http.get(f"{on.url}/v1/responses/{first['id']}")).json()
        assert stored["output"] == first["output"]


async def test_functions_of_the_client_end_the_response() -> None:
    function = {"type": "function", "name": "mine", "parameters": {"type": "object"}}
    async with stage(lambda _: [ADD, ("mine", {"x": 1})]) as on:
        for stream in (False, True):
            response = await on.ask([on.tool(), function], stream=stream)
            assert kinds(response) == ["mcp_list_tools", "function_call", "mcp_call"]
            assert response["output"][1]["name"] == "mine"
            assert response["output"][2]["output"] == "3"
        assert len(on.upstream.requests) == 2


async def test_allowed_tools_are_the_only_ones_offered() -> None:
    async with stage(once(ADD)) as on:
        await on.ask([on.tool(allowed_tools=["add"])])
        assert asked_tools(on.upstream.requests[0]) == ["m__add"]
        await on.ask([on.tool(allowed_tools={"read_only": True})])
        assert asked_tools(on.upstream.requests[-1]) == ["m__add"]


async def test_no_more_calls_than_the_request_allows() -> None:
    async with stage(lambda r: [ADD] if asked_tools(r) else ["Done"]) as on:
        response = await on.ask(max_tool_calls=2)
        assert kinds(response).count("mcp_call") == 2
        assert response["output_text"] == "Done"
        assert response["max_tool_calls"] == 2
        assert len(on.calls) == 2


async def test_no_more_turns_than_the_settings_allow() -> None:
    answer: Answer = lambda r: [ADD] if asked_tools(r) else ["Done"]  # noqa: E731
    async with stage(answer, tools={"max_turns": 3, "run": {"mcp": "router"}}) as on:
        response = await on.ask()
        assert len(on.upstream.requests) == 3
        assert response["output_text"] == "Done"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_that_fails_is_told_to_the_model_and_shown(stream: bool) -> None:
    async with stage(once(("m__fail", {"why": "broken"}), ("m__add", {"a": "x"}))) as on:
        response = await on.ask(stream=stream)
        failed, refused = response["output"][1:3]
        assert failed["status"] == refused["status"] == "failed"
        assert failed["error"]["type"] == "mcp_tool_execution_error"
        assert "broken" in failed["error"]["content"][0]["text"]
        assert response["status"] == "completed"
        assert "Error: " in response["output_text"]


async def test_a_tool_that_hangs_is_given_up_and_cancelled() -> None:
    limits = {"call_timeout": 0.3, "run": {"mcp": "router"}}
    async with stage(once(("m__slow", {})), tools=limits) as on:
        response = await on.ask()
        call = response["output"][1]
        assert call["status"] == "failed"
        assert "did not answer in time" in call["error"]["message"]
        await until(lambda: on.calls.cancelled == 1)


async def test_calls_run_side_by_side_and_are_told_in_order() -> None:
    async with stage(once(("m__slow", {"name": "a"}), ("m__slow", {"name": "b"}))) as on:
        asking = asyncio.create_task(on.ask(stream=True))
        await until(lambda: on.calls.begun == 2)
        on.calls.gate.set()
        response = await asking
        assert [item["output"] for item in response["output"][1:3]] == ["slow a", "slow b"]


@pytest.mark.parametrize("approve", [True, False])
async def test_a_call_waits_for_approval(approve: bool) -> None:
    async with stage(once(ADD)) as on:
        tools = [on.tool(require_approval="always")]
        first = await on.ask(tools)
        assert kinds(first) == ["mcp_list_tools", "mcp_approval_request"]
        assert on.calls == []
        request = first["output"][1]
        answer = {"type": "mcp_approval_response", "approval_request_id": request["id"]}
        second = await on.ask(
            tools,
            input=[{**answer, "approve": approve, "reason": "No thanks"}],
            previous_response_id=first["id"],
            stream=True,
        )
        if approve:
            assert kinds(second) == ["mcp_call", "message"]
            assert second["output"][0]["approval_request_id"] == request["id"]
            assert second["output_text"] == "3"
        else:
            assert second["output_text"] == "The user did not approve this call. No thanks"
        third = await on.ask(tools, input="And?", previous_response_id=second["id"])
        assert kinds(third) == ["message"]
        assert on.calls == ([("add", (1, 2))] if approve else [])


async def test_approval_can_be_waived_by_tool() -> None:
    async with stage(once(ADD), mcp={"require_approval": "always"}) as on:
        response = await on.ask([on.tool(require_approval={"never": {"tool_names": ["add"]}})])
        assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
        assert kinds(await on.ask())[-1] == "mcp_approval_request"


async def test_a_server_that_refuses_the_credentials_is_a_401() -> None:
    async with stage(once(ADD), token=True) as on:
        for stream in (False, True):
            status, body = await on.post([on.tool(authorization="wrong-token")], stream=stream)
            error = orjson.loads(body)["error"]
            assert (status, error["param"]) == (401, "tools[0]")
            assert "wrong-token" not in error["message"]
        assert on.upstream.requests == []


@pytest.mark.parametrize(
    "server",
    [
        "http://127.0.0.1:9/mcp",
        "http://169.254.169.254/latest",
        "http://[::ffff:127.0.0.1]/mcp",
        "http://[64:ff9b::7f00:1]/mcp",
        "http://localhost/mcp",
        "ftp://example.com/mcp",
        "http://user:pass@example.com/mcp",
    ],
)
async def test_servers_inside_are_not_connected_to(server: str) -> None:
    async with stage(once(ADD), fetch={}) as on:
        status, body = await on.post([on.tool(server_url=server)])
        error = orjson.loads(body)["error"]
        if error["param"] == "tools[0].server_url":  # it is no URL that could be one
            assert status == 400
        else:
            assert (status, error["code"]) == (424, "external_connector_error")
        assert on.calls == []


async def test_a_choice_of_a_hosted_tool_holds_for_the_first_turn() -> None:
    async with stage(once(ADD)) as on:
        await on.ask(tool_choice={"type": "mcp", "server_label": "m", "name": "add"})
        first, second = (request.json for request in on.upstream.requests)
        assert first["tool_choice"] == {"type": "function", "function": {"name": "m__add"}}
        assert second.get("tool_choice", "auto") == "auto"
        await on.ask(tool_choice={"type": "mcp", "server_label": "m"})
        assert on.upstream.requests[-2].json["tool_choice"] == "required"
        status, body = await on.post(
            tool_choice={"type": "mcp", "server_label": "m", "name": "none"}
        )
        assert (status, orjson.loads(body)["error"]["param"]) == (400, "tool_choice")


async def test_a_configured_server_is_used_by_its_label() -> None:
    server = {**SERVER, "env": {**SERVER["env"], "SECRET_OF_TOOL": "for the tool"}}
    read = ("m__environment", {"name": "SECRET_OF_TOOL"})
    async with stage(once(read), mcp={"servers": [server]}) as on:
        response = await on.ask([{"type": "mcp", "server_label": "m"}])
        assert response["output"][1]["output"] == "for the tool"


async def test_clients_name_no_servers_where_that_is_off() -> None:
    async with stage(once(ADD), mcp={"client_servers": False}) as on:
        status, body = await on.post()
        assert (status, orjson.loads(body)["error"]["param"]) == (400, "tools[0].server_url")


async def test_a_key_is_allowed_or_denied_tools() -> None:
    keys = [
        {"name": "all", "key": "sk-all"},
        {"name": "none", "key": "sk-none", "tools": []},
        {"name": "labelled", "key": "sk-labelled", "tools": ["mcp:known"]},
    ]
    async with stage(once(ADD), auth={"keys": keys}) as on:
        for key, expected in (("sk-all", 200), ("sk-none", 403), ("sk-labelled", 403)):
            on.http.headers["Authorization"] = f"Bearer {key}"
            status, body = await on.post()
            assert status == expected, body


async def test_a_background_run_runs_tools_and_keeps_no_credentials() -> None:
    async with stage(once(ADD), token=True) as on:
        queued = await on.ask([on.tool(authorization=TOKEN)], background=True)
        url = f"{on.url}/v1/responses/{queued['id']}"

        async def over() -> JSON | None:
            response: JSON = await (await on.http.get(url)).json()
            return response if response["status"] not in ("queued", "in_progress") else None

        response = await until(over)
        assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
        assert TOKEN not in repr(response)
        async with on.http.get(f"{url}?stream=true&starting_after=-1") as stream:
            events = (await stream.read()).split(b"\n\n")
        assert any(b"response.mcp_call.completed" in event for event in events)


async def test_a_cancelled_run_cancels_its_call() -> None:
    async with stage(once(("m__slow", {}))) as on:
        queued = await on.ask(background=True)
        await until(lambda: on.calls.begun == 1)
        url = f"{on.url}/v1/responses/{queued['id']}"
        async with on.http.post(f"{url}/cancel") as cancelled:
            assert (await cancelled.json())["status"] == "cancelled"
        await until(lambda: on.calls.cancelled == 1)


async def test_a_client_that_leaves_cancels_the_call() -> None:
    async with stage(once(("m__slow", {}))) as on:
        asking = asyncio.create_task(on.ask(stream=True))
        await until(lambda: on.calls.begun == 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: on.calls.cancelled == 1)


async def test_every_turn_and_call_is_accounted_for() -> None:
    server = {**SERVER, "price_per_call": 0.25}
    async with stage(adds_twice, mcp={"servers": [server]}, metrics={"key": None}) as on:
        await on.ask([{"type": "mcp", "server_label": "m"}])
        metrics = await (await on.http.get(f"{on.url}/metrics")).text()
        assert 'pointsman_tool_calls_total{outcome="ok",server="m",tool="mcp"} 2.0' in metrics
        assert 'pointsman_attempts_total{endpoint="one",kind="first",outcome="ok"} 1.0' in metrics
        assert 'pointsman_attempts_total{endpoint="one",kind="turn",outcome="ok"} 1.0' in metrics
        assert 'pointsman_cost_usd_total{endpoint="",key="default",model="mcp:m"} 0.5' in metrics


async def test_who_runs_a_tool_is_explained() -> None:
    async with stage(once(ADD), admin={"key": "sk-admin"}) as on:
        body = {"model": "m", "input": "Go", "tools": [on.tool(), {"type": "web_search"}]}
        headers = {"Authorization": "Bearer sk-admin"}
        async with on.http.post(f"{on.url}/admin/explain", json=body, headers=headers) as answer:
            notes = (await answer.json())["notes"]
        assert any("'tools[0]' (mcp) is run by the router" in note for note in notes)
        assert any("'tools[1]' (web_search) is run by nobody" in note for note in notes)
        assert on.upstream.requests == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_official_client(dialect: Dialect) -> None:
    async with (
        stage(adds_twice, dialect, token=True) as on,
        openai.AsyncOpenAI(base_url=f"{on.url}/v1", api_key="sk", max_retries=0) as client,
    ):
        asked: Any = {"model": "m", "input": "Go", "tools": [on.tool()]}
        with pytest.raises(openai.AuthenticationError):
            await client.responses.create(**asked)
        asked["tools"] = [on.tool(headers={"Authorization": f"Bearer {TOKEN}"})]
        whole = await client.responses.create(**asked)
        async with client.responses.stream(**asked) as events:
            seen = [event.type async for event in events]
            streamed = await events.get_final_response()
        assert "response.mcp_call.completed" in seen
        for response in (whole, streamed):
            items: list[Any] = list(response.output)
            assert items[0].type == "mcp_list_tools"
            assert [item.output for item in items if item.type == "mcp_call"] == ["3", "7"]
            assert response.output_text == "Adding. Sums: 3, 7"
