"""LangChain's `langchain-openai`, over Responses and over Chat Completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.clients.conftest import KEY
from tests.support.fleet import MODELS, OPENAI_STYLE

langchain: Any = pytest.importorskip(
    "langchain_openai", reason="the extra `clients` is not installed"
)

QUESTION = "What is the weather in Paris?"
NINE = "1, 2, 3, 4, 5, 6, 7, 8, 9"


class Person(BaseModel):
    """A person."""

    name: str
    age: int


class get_weather(BaseModel):
    """The weather in a city."""

    city: str


@pytest.fixture
async def options(base_url: str, model: str) -> AsyncIterator[dict[str, Any]]:
    """What each of its objects is made with; left to itself it closes no connection."""
    async with openai.DefaultAsyncHttpxClient() as http:
        yield {
            "model": model,
            "base_url": f"{base_url}/v1",
            "api_key": KEY,
            "max_retries": 0,
            "timeout": 20,
            "http_async_client": http,
        }


@pytest.fixture(params=[True, False], ids=["responses", "chat"])
def llm(request: pytest.FixtureRequest, options: dict[str, Any]) -> Any:
    """LangChain's model, over either API."""
    return langchain.ChatOpenAI(**options, use_responses_api=request.param, stream_usage=True)


async def test_invoke(llm: Any) -> None:
    answer = await llm.ainvoke([("system", "Be brief."), ("user", "count to 9")])
    assert answer.text == NINE
    assert answer.usage_metadata["total_tokens"] > 9


async def test_stream(llm: Any) -> None:
    chunks = [chunk async for chunk in llm.astream("count to 9")]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.text == NINE
    assert len([chunk for chunk in chunks if chunk.text]) > 3
    assert whole.usage_metadata["total_tokens"] > 9


async def test_bound_tools(llm: Any) -> None:
    bound = llm.bind_tools([get_weather])
    called = await bound.ainvoke(QUESTION)
    [call] = called.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})
    result = {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
    answer = await bound.ainvoke([("user", QUESTION), called, result])
    assert answer.text == "According to get_weather: sunny"


async def test_streamed_tools(llm: Any) -> None:
    chunks = [chunk async for chunk in llm.bind_tools([get_weather]).astream(QUESTION)]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    [call] = whole.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
async def test_structured_output(llm: Any, method: str) -> None:
    person = await llm.with_structured_output(Person, method=method).ainvoke("Ann is 33.")
    assert isinstance(person, Person)
    assert person.age == 33


async def test_chained_responses(options: dict[str, Any]) -> None:
    ways = {"use_responses_api": True, "use_previous_response_id": True}
    llm = langchain.ChatOpenAI(**options, **ways)
    first = await llm.ainvoke("My name is Ann.")
    history = [("user", "My name is Ann."), first, ("user", "What is my name?")]
    assert (await llm.ainvoke(history)).text == "Your name is Ann."


@pytest.mark.parametrize("model", [MODELS[dialect] for dialect in OPENAI_STYLE])
async def test_embeddings(options: dict[str, Any]) -> None:
    embedder = langchain.OpenAIEmbeddings(**options, check_embedding_ctx_length=False)
    first, second = await embedder.aembed_documents(["a red cat", "the sea"])
    assert len(first) == len(second) > 1
    assert await embedder.aembed_query("a red cat") == pytest.approx(first)
