"""OpenAI's own Python client, unchanged, in front of every dialect over real sockets."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import FunctionToolParam, Response
from pydantic import BaseModel

from tests.support.fleet import MODELS

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
QUESTION = "What is the weather in Paris?"


class Person(BaseModel):
    """What a structured answer is parsed into."""

    name: str
    age: int
    hobbies: list[str]


async def test_create(client: AsyncOpenAI, model: str) -> None:
    response = await client.responses.create(
        model=model,
        input="count to 5",
        instructions="Be brief.",
        metadata={"team": "a"},
        temperature=0.5,
        max_output_tokens=200,
    )
    assert response.output_text == "1, 2, 3, 4, 5"
    assert response.status == "completed"
    assert response.id.startswith("resp_")
    assert response.output[0].type == "message"
    assert response.output[0].id.startswith("msg_")
    assert response.instructions == "Be brief."
    assert response.metadata == {"team": "a"}
    assert response.temperature == 0.5
    assert response.max_output_tokens == 200
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.usage.output_tokens > 0


async def test_an_answer_that_is_cut_is_incomplete(client: AsyncOpenAI, model: str) -> None:
    response = await client.responses.create(
        model=model, input="count to 500", max_output_tokens=16
    )
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text.startswith("1, 2, 3")


async def test_stream(client: AsyncOpenAI, model: str) -> None:
    stream = await client.responses.create(model=model, input="count to 9", stream=True)
    events = [event async for event in stream]
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) > 3
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "".join(deltas) == "1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert events[0].type == "response.created"
    assert events[0].response.id == last.response.id
    assert last.response.usage is not None


async def test_reasoning_comes_before_the_message(client: AsyncOpenAI, model: str) -> None:
    response = await client.responses.create(
        model=model, input="Why?", reasoning={"effort": "high", "summary": "auto"}
    )
    assert [item.type for item in response.output] == ["reasoning", "message"]


async def test_parse(client: AsyncOpenAI, model: str) -> None:
    response = await client.responses.parse(
        model=model, input="Ann is 33 and likes chess.", text_format=Person
    )
    assert isinstance(response.output_parsed, Person)
    assert json.loads(response.output_text) == response.output_parsed.model_dump()


async def test_the_streaming_helper_parses(client: AsyncOpenAI, model: str) -> None:
    async with client.responses.stream(
        model=model, input="Ann is 33 and likes chess.", text_format=Person
    ) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[0] == "response.created"
    assert "response.output_text.done" in kinds
    assert isinstance(final.output_parsed, Person)


async def test_the_streaming_helper_with_tools(client: AsyncOpenAI, model: str) -> None:
    async with client.responses.stream(model=model, input=QUESTION, tools=[WEATHER]) as stream:
        snapshots = [
            event.snapshot
            async for event in stream
            if event.type == "response.function_call_arguments.delta"
        ]
        final = await stream.get_final_response()
    assert json.loads(snapshots[-1])["city"]
    (call,) = [item for item in final.output if item.type == "function_call"]
    assert call.arguments == snapshots[-1]


async def test_function_calling_with_the_whole_history(client: AsyncOpenAI, model: str) -> None:
    history: list[Any] = [{"role": "user", "content": QUESTION}]
    first = await client.responses.create(
        model=model, input=history, tools=[WEATHER], reasoning={"effort": "low"}
    )
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert call.name == "get_weather"
    assert call.call_id.startswith("toolu_" if model == MODELS["messages"] else "call_")
    city = json.loads(call.arguments)["city"]

    history += first.output  # the SDK's own objects, sent back as they came
    result = {"city": city, "sky": "clear"}
    history.append(
        {"type": "function_call_output", "call_id": call.call_id, "output": json.dumps(result)}
    )
    second = await client.responses.create(model=model, input=history, tools=[WEATHER])
    assert second.output_text == f"According to get_weather: city is {city}, sky is clear."

    history += second.output
    history.append({"role": "user", "content": "And my name is Ann."})
    history.append({"role": "user", "content": "What is my name?"})
    third = await client.responses.create(model=model, input=history)
    assert third.output_text == "Your name is Ann."


async def test_parallel_calls_in_a_stream(client: AsyncOpenAI, model: str) -> None:
    stream = await client.responses.create(
        model=model,
        input="What is the weather in Paris and in Rome?",
        tools=[WEATHER, {**WEATHER, "name": "get_news"}],
        tool_choice="required",
        stream=True,
    )
    final: Response | None = None
    done = []
    async for event in stream:
        if event.type == "response.output_item.done":
            done.append(event.item)
        elif event.type == "response.completed":
            final = event.response
    assert final is not None
    assert [item.type for item in final.output] == ["function_call"] * len(final.output)
    assert [item.id for item in done] == [item.id for item in final.output]


async def test_chat_completions(client: AsyncOpenAI, model: str) -> None:
    completion = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "count to 3"}]
    )
    assert completion.choices[0].message.content == "1, 2, 3"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None


@pytest.mark.parametrize("wanted", [True, False, None])
async def test_a_chat_stream_has_usage_only_when_asked(
    client: AsyncOpenAI, model: str, wanted: bool | None
) -> None:
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "count to 6"}],
        stream=True,
        stream_options=openai.omit if wanted is None else {"include_usage": wanted},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "1, 2, 3, 4, 5, 6"
    usages = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert len(usages) == (1 if wanted else 0)
    assert [not chunk.choices for chunk in chunks].count(True) == (1 if wanted else 0)


async def test_models(client: AsyncOpenAI) -> None:
    listed = {model.id async for model in client.models.list()}
    embedders = {"sim-embed", "sim-embed:latest"}
    assert listed == {"sim-native", "sim-chat", "sim-claude", "sim-llama:latest", *embedders}
    for name in [*listed, "sim-llama"]:
        assert (await client.models.retrieve(name)).id == name
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nothing-like-it")


async def test_input_tokens(client: AsyncOpenAI, model: str) -> None:
    counted = await client.responses.input_tokens.with_raw_response.count(
        model=model, input="How many tokens are these?"
    )
    assert counted.parse().input_tokens > 3
    estimated = counted.headers.get("X-Pointsman-Estimated")
    assert estimated == (None if model in (MODELS["responses"], MODELS["messages"]) else "true")


@pytest.mark.parametrize("stream", [True, False])
async def test_an_unknown_model(client: AsyncOpenAI, stream: bool) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.responses.create(model="gpt-none", input="Hi", stream=stream)
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"
    assert "sim-chat" in caught.value.message  # it names what is served


async def test_a_wrong_key(client: AsyncOpenAI, model: str) -> None:
    stranger = client.with_options(api_key="sk-somebody-else")
    for call in (
        stranger.responses.create(model=model, input="Hi"),
        stranger.responses.retrieve("resp_1"),
        stranger.chat.completions.create(model=model, messages=[]),
        stranger.models.retrieve(model),
    ):
        with pytest.raises(openai.AuthenticationError) as caught:
            await call
        assert caught.value.code == "invalid_api_key"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temperature": 3}, "temperature", "decimal_above_max_value"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"input": 5}, "input", "invalid_type"),
        ({"model": 5}, "model", "invalid_type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "missing_required_parameter"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "previous_response_not_found"),
        ({"background": True, "store": False}, "background", "unsupported_parameter"),
    ],
)
async def test_bad_requests(
    client: AsyncOpenAI, model: str, fields: dict[str, Any], param: str, code: str
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(model=model, input="Hi", stream=stream, extra_body=fields)
        assert caught.value.param == param
        assert caught.value.code == code
        assert caught.value.type == "invalid_request_error"


async def test_what_the_client_does_not_know_can_be_asked_for(
    client: AsyncOpenAI, model: str
) -> None:
    response = await client.responses.create(
        model=model, input="count to 2", extra_body={"top_k": 5, "nomyo": {"cache": True}}
    )
    assert response.output_text == "1, 2"


async def test_a_client_that_leaves_a_stream_can_go_on(client: AsyncOpenAI, model: str) -> None:
    async with await client.responses.create(
        model=model, input="count to 900", stream=True
    ) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
    response = await client.responses.create(model=model, input="count to 2")
    assert response.output_text == "1, 2"
