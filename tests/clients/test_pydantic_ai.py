"""Pydantic AI's agents, over Responses, Chat Completions and Anthropic's Messages."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.clients.conftest import KEY

ai: Any = pytest.importorskip("pydantic_ai", reason="the extra `clients` is not installed")

QUESTION = "What is the weather in Paris?"
NINE = "1, 2, 3, 4, 5, 6, 7, 8, 9"


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@pytest.fixture(params=["responses", "chat", "messages"])
async def brain(
    request: pytest.FixtureRequest, base_url: str, client: AsyncOpenAI, model: str
) -> Any:
    """Its model, over each API."""
    claude_model: Any = import_module("pydantic_ai.models.anthropic")
    claude_provider: Any = import_module("pydantic_ai.providers.anthropic")
    models: Any = import_module("pydantic_ai.models.openai")
    providers: Any = import_module("pydantic_ai.providers.openai")

    if request.param == "messages":
        async with AsyncAnthropic(base_url=base_url, api_key=KEY, max_retries=0) as claude:
            provider = claude_provider.AnthropicProvider(anthropic_client=claude)
            yield claude_model.AnthropicModel(model, provider=provider)
        return
    kinds: Any = {"responses": models.OpenAIResponsesModel, "chat": models.OpenAIChatModel}
    yield kinds[request.param](model, provider=providers.OpenAIProvider(openai_client=client))


async def test_run(brain: Any) -> None:
    result = await ai.Agent(brain, instructions="Be brief.").run("count to 9")
    assert result.output == NINE
    assert result.usage.output_tokens > 9


async def test_a_streamed_run(brain: Any) -> None:
    async with ai.Agent(brain).run_stream("count to 9") as result:
        texts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
    assert "".join(texts) == NINE
    assert len(texts) > 3


async def test_a_tool(brain: Any) -> None:
    called = []

    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(city)
        return f"sunny in {city}"

    result = await ai.Agent(brain, tools=[get_weather]).run(QUESTION)
    assert called == ["Paris"]
    assert result.output == "According to get_weather: sunny in Paris"


@pytest.mark.parametrize("way", ["tool", "native"])
async def test_a_structured_output(brain: Any, way: str) -> None:
    if way == "native" and brain.system == "anthropic":
        pytest.skip(
            "does not apply: Pydantic AI knows which of Anthropic's own models can do it, "
            "and asks no other"
        )
    wanted = {"tool": ai.ToolOutput, "native": ai.NativeOutput}[way](Person)
    result = await ai.Agent(brain, output_type=wanted).run("Ann is 33.")
    assert isinstance(result.output, Person)
    assert result.output.age == 33


async def test_a_conversation(brain: Any) -> None:
    agent = ai.Agent(brain)
    first = await agent.run("My name is Ann.")
    second = await agent.run("What is my name?", message_history=first.all_messages())
    assert second.output == "Your name is Ann."
