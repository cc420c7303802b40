"""OpenAI's Agents SDK: runs with a tool, streamed or not, over both of its models."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

agents: Any = pytest.importorskip("agents", reason="the extra `clients` is not installed")

CLEAR = "According to get_weather: sunny in Paris"
QUESTION = "What is the weather in Paris?"


class Person(BaseModel):
    """What a structured answer is parsed into."""

    name: str
    age: int


@pytest.fixture(params=["responses", "chat"])
def brain(request: pytest.FixtureRequest, client: AsyncOpenAI, model: str) -> Any:
    """The SDK's model, over either API."""
    agents.set_tracing_disabled(True)
    kinds = {
        "responses": agents.OpenAIResponsesModel,
        "chat": agents.OpenAIChatCompletionsModel,
    }
    return kinds[request.param](model=model, openai_client=client)


def weatherman(brain: Any, called: list[str]) -> Any:
    """An agent that can look up the weather."""

    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(city)
        return f"sunny in {city}"

    tool = agents.function_tool(get_weather)
    return agents.Agent(name="Helper", instructions="Be brief.", model=brain, tools=[tool])


async def test_a_run_calls_a_tool(brain: Any) -> None:
    called: list[str] = []
    result = await agents.Runner.run(weatherman(brain, called), QUESTION)
    assert result.final_output == CLEAR
    assert called == ["Paris"]
    assert result.context_wrapper.usage.requests == 2
    assert result.context_wrapper.usage.output_tokens > 0


async def test_a_streamed_run_calls_a_tool(brain: Any) -> None:
    called: list[str] = []
    result = agents.Runner.run_streamed(weatherman(brain, called), QUESTION)
    texts = []
    items = []
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            texts.append(event.data.delta)
        elif event.type == "run_item_stream_event":
            items.append(event.name)
    assert "".join(texts) == result.final_output == CLEAR
    assert len(texts) > 3
    assert called == ["Paris"]
    assert items == ["tool_called", "tool_output", "message_output_created"]


async def test_a_run_has_a_structured_output(brain: Any) -> None:
    agent = agents.Agent(name="Reader", model=brain, output_type=Person)
    result = await agents.Runner.run(agent, "Ann is 33.")
    assert isinstance(result.final_output, Person)
    assert result.final_output.age == 33


async def test_a_session_remembers(brain: Any) -> None:
    agent = agents.Agent(name="Helper", model=brain)
    session = agents.SQLiteSession("s")
    try:
        await agents.Runner.run(agent, "My name is Ann.", session=session)
        result = await agents.Runner.run(agent, "What is my name?", session=session)
    finally:
        session.close()
    assert result.final_output == "Your name is Ann."


async def test_runs_are_chained_by_the_router(client: AsyncOpenAI, model: str) -> None:
    agents.set_tracing_disabled(True)
    brain = agents.OpenAIResponsesModel(model=model, openai_client=client)
    agent = weatherman(brain, [])
    first = await agents.Runner.run(agent, "My name is Ann.")
    second = await agents.Runner.run(
        agent, "What is my name?", previous_response_id=first.last_response_id
    )
    assert second.final_output == "Your name is Ann."


async def test_an_agent_hands_over_to_another(brain: Any) -> None:
    other = agents.Agent(name="Weather", model=brain, instructions="Be exact.")
    agent = agents.Agent(name="Desk", model=brain, handoffs=[other])
    result = await agents.Runner.run(agent, QUESTION)
    assert result.last_agent is other
    assert result.final_output
