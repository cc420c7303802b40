"""OpenAI's client and the Agents SDK over a WebSocket, unchanged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from tests.clients.conftest import KEY
from tests.clients.test_openai_agents import CLEAR, QUESTION, weatherman
from tests.clients.test_openai_client import WEATHER

agents: Any = pytest.importorskip("agents", reason="the extra `clients` is not installed")
pytest.importorskip("websockets")


async def answered(connection: Any, stream: str | None = None) -> Any:
    """The response that the next terminal event brings."""
    async for event in connection:
        assert event.type != "error", event
        assert event.stream_id == stream
        if event.type in ("response.completed", "response.failed", "response.incomplete"):
            return event.response
    raise AssertionError("the connection was closed")


async def test_connect(client: AsyncOpenAI, model: str) -> None:
    async with client.responses.connect() as connection:
        await connection.response.create(
            model=model,
            store=False,
            input="What is the weather in Paris?",
            tools=[WEATHER],
        )
        first = await answered(connection)
        [call] = [item for item in first.output if item.type == "function_call"]
        await connection.response.create(
            model=model,
            store=False,
            previous_response_id=first.id,
            tools=[WEATHER],
            input=[
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": "sunny in Paris",
                }
            ],
        )
        second = await answered(connection)
        assert second.output_text == CLEAR
        assert second.usage.total_tokens > 0


async def test_streams(client: AsyncOpenAI, model: str) -> None:
    """Two conversations at once, and a fork of one, as the guide has it."""
    async with client.responses.connect() as connection:
        for name in ("planner", "research"):
            await connection.response.create(
                model=model, store=False, stream_id=name, input=f"My name is {name}."
            )
        latest: dict[str, str] = {}
        async for event in connection:
            if event.type == "response.completed":
                latest[str(event.stream_id)] = event.response.id
                if len(latest) == 2:
                    break
        await connection.response.create(
            model=model,
            store=False,
            stream_id="critic",
            previous_response_id=latest["planner"],
            input="What is my name?",
        )
        fork = await answered(connection, "critic")
        assert "planner" in fork.output_text


async def test_an_error(client: AsyncOpenAI, model: str) -> None:
    async with client.responses.connect() as connection:
        await connection.response.create(
            model=model, store=False, input="hi", previous_response_id="resp_none"
        )
        event: Any = await connection.recv()
        assert event.type == "error"
        assert event.error.code == "previous_response_not_found"


async def test_connect_without_asyncio(base_url: str, model: str) -> None:
    """As the guide's examples do."""

    def talk() -> list[str]:
        texts, previous = [], None
        with (
            OpenAI(base_url=f"{base_url}/v1", api_key=KEY) as client,
            client.responses.connect() as connection,
        ):
            for text in ("My name is Ann.", "What is my name?"):
                after: Any = {"previous_response_id": previous} if previous else {}
                connection.response.create(model=model, store=False, input=text, **after)
                for event in connection:
                    if event.type == "response.completed":
                        previous = event.response.id
                        texts.append(event.response.output_text)
                        break
        return texts

    assert "Ann" in (await asyncio.to_thread(talk))[-1]


@pytest.fixture
async def brain(client: AsyncOpenAI, model: str) -> Any:
    """The SDK's model that speaks over a WebSocket."""
    agents.set_tracing_disabled(True)
    socket_models: Any = pytest.importorskip("agents.models.openai_responses")
    model_over_socket = socket_models.OpenAIResponsesWSModel(model=model, openai_client=client)
    yield model_over_socket
    await model_over_socket.close()


async def test_agents_call_a_tool(brain: Any) -> None:
    called: list[str] = []
    result = await agents.Runner.run(weatherman(brain, called), QUESTION)
    assert result.final_output == CLEAR
    assert called == ["Paris"]
    assert result.context_wrapper.usage.requests == 2
    assert result.context_wrapper.usage.output_tokens > 0


async def test_agents_stream_and_go_on(brain: Any) -> None:
    called: list[str] = []
    agent = weatherman(brain, called)
    streamed = agents.Runner.run_streamed(agent, QUESTION)
    deltas = []
    async for event in streamed.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            deltas.append(event.data.delta)
    assert "".join(deltas) == streamed.final_output == CLEAR
    more = await agents.Runner.run(
        agents.Agent(name="Helper", model=brain),
        "What did I ask?",
        previous_response_id=streamed.last_response_id,
    )
    assert more.final_output
