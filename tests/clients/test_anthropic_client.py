"""The official Anthropic client, against every dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import orjson
import pytest
from anthropic import AsyncAnthropic

from tests.clients.conftest import KEY
from tests.support.anthropic import check_message
from tests.support.fleet import DIALECTS, MODELS, OPENAI_STYLE, http_client, routed, simulated

WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather in a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
THINK: Any = {"type": "enabled", "budget_tokens": 10_000}


@pytest.fixture
async def claude(base_url: str) -> AsyncIterator[AsyncAnthropic]:
    """Anthropic's client, pointed at the router."""
    async with AsyncAnthropic(base_url=base_url, api_key=KEY, max_retries=0) as client:
        yield client


def user(text: str) -> Any:
    return {"role": "user", "content": text}


async def told(client: AsyncAnthropic, **asked: Any) -> Any:
    """The message that a stream adds up to, as the client sees it."""
    async with client.messages.stream(max_tokens=20_000, **asked) as stream:
        return await stream.get_final_message()


async def made(client: AsyncAnthropic, **asked: Any) -> Any:
    """A message in one piece."""
    return await client.with_options(timeout=20).messages.create(max_tokens=20_000, **asked)


BOTH = pytest.mark.parametrize("ask", [made, told])


@BOTH
async def test_a_message(claude: AsyncAnthropic, model: str, ask: Any) -> None:
    message = await ask(
        claude, model=model, messages=[user("Say exactly: hällo wörld")], system="Be brief."
    )
    assert [(b.type, b.text) for b in message.content] == [("text", "hällo wörld")]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.input_tokens > 0
    assert message.usage.output_tokens > 0
    assert message.usage.cache_read_input_tokens == 0
    assert model in message.model
    check_message(message.to_dict(mode="json"))


async def test_pieces_come_one_by_one(claude: AsyncAnthropic, model: str) -> None:
    pieces = []
    async with claude.messages.stream(
        model=model, max_tokens=100, messages=[user("Count to 12")]
    ) as stream:
        async for piece in stream.text_stream:
            pieces.append(piece)
    assert len(pieces) > 5
    assert "".join(pieces) == ", ".join(map(str, range(1, 13)))


@BOTH
async def test_too_long(claude: AsyncAnthropic, model: str, ask: Any) -> None:
    asked: Any = {"model": model, "max_tokens": 5, "messages": [user("Count to 100")]}
    if ask is made:
        message = await claude.messages.create(**asked)
    else:
        async with claude.messages.stream(**asked) as stream:
            message = await stream.get_final_message()
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 5


@BOTH
async def test_tools_there_and_back(claude: AsyncAnthropic, model: str, ask: Any) -> None:
    messages = [user("What is the weather in Paris and Rome?")]
    asked = {"model": model, "tools": [WEATHER]}
    message = await ask(claude, messages=messages, **asked)
    assert message.stop_reason == "tool_use"
    calls = [block for block in message.content if block.type == "tool_use"]
    assert [(call.name, call.input) for call in calls] == [
        ("get_weather", {"city": "Paris"}),
        ("get_weather", {"city": "Rome"}),
    ]
    assert len({call.id for call in calls}) == 2
    results = [
        {"type": "tool_result", "tool_use_id": calls[0].id, "content": '{"sky": "grey"}'},
        {
            "type": "tool_result",
            "tool_use_id": calls[1].id,
            "content": [{"type": "text", "text": "no such city"}],
            "is_error": True,
        },
    ]
    messages += [message.to_param(), {"role": "user", "content": results}]
    message = await ask(claude, messages=messages, **asked)
    assert message.stop_reason == "end_turn"
    assert "sky is grey" in message.content[0].text
    assert "The tool failed.\nno such city" in message.content[0].text


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        ({"type": "any"}, True),
        ({"type": "tool", "name": "get_weather"}, True),
        ({"type": "none"}, False),
        ({"type": "auto", "disable_parallel_tool_use": True}, True),
    ],
)
async def test_tool_choice(claude: AsyncAnthropic, model: str, choice: Any, called: bool) -> None:
    message = await made(
        claude,
        model=model,
        messages=[user("What is the weather in Oslo?")],
        tools=[WEATHER],
        tool_choice=choice,
    )
    assert [block.type for block in message.content] == ["tool_use" if called else "text"]


@BOTH
async def test_thinking_there_and_back(claude: AsyncAnthropic, model: str, ask: Any) -> None:
    messages = [user("What is the weather in Paris?")]
    asked = {"model": model, "tools": [WEATHER], "thinking": THINK}
    message = await ask(claude, messages=messages, **asked)
    assert [block.type for block in message.content] == ["thinking", "tool_use"]
    thought = message.content[0]
    assert "simulated model" in thought.thinking
    assert thought.signature
    result = {"type": "tool_result", "tool_use_id": message.content[1].id, "content": "sunny"}
    messages += [message.to_param(), {"role": "user", "content": [result]}]
    message = await ask(claude, messages=messages, **asked)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[1].text.endswith("sunny")


async def test_thinking_is_not_shown_to_who_does_not_ask(
    claude: AsyncAnthropic, model: str
) -> None:
    effort: Any = {"effort": "high"}
    message = await made(claude, model=model, messages=[user("Hi there")], output_config=effort)
    assert [block.type for block in message.content] == ["text"]


@pytest.mark.parametrize("model", [MODELS[dialect] for dialect in OPENAI_STYLE])
async def test_old_results_are_cleared(claude: AsyncAnthropic, model: str) -> None:
    """By the router; endpoints that speak Messages are sent ``context_management`` as it came."""
    messages: list[Any] = [user("Say exactly: done")]
    for n in range(4):
        call = {"type": "tool_use", "id": f"toolu_{n}", "name": "get_weather", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "sunny " * 300}
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    asked: Any = {"model": model, "messages": messages, "tools": [WEATHER]}
    edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 2}}
    edited: Any = {
        "context_management": {"edits": [edit]},
        "betas": ["context-management-2025-06-27"],
    }
    message = await claude.beta.messages.create(max_tokens=1000, **asked, **edited)
    async with claude.beta.messages.stream(max_tokens=1000, **asked, **edited) as stream:
        streamed = await stream.get_final_message()
    for told in (message.context_management, streamed.context_management):
        assert told is not None
        done: Any = told.applied_edits[0]
        assert done.type == "clear_tool_uses_20250919"
        assert (done.cleared_tool_uses, done.cleared_input_tokens > 400) == (1, True)
    plain = await claude.messages.count_tokens(**asked)
    count = await claude.beta.messages.count_tokens(**asked, **edited)
    assert count.input_tokens + 200 < plain.input_tokens
    assert count.context_management is not None
    assert count.context_management.original_input_tokens == pytest.approx(
        plain.input_tokens, rel=0.2
    )


async def test_a_schema(claude: AsyncAnthropic, model: str) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    config: Any = {"format": {"type": "json_schema", "schema": schema}}
    message = await made(
        claude, model=model, messages=[user("Where? In Paris")], output_config=config
    )
    assert list(orjson.loads(message.content[0].text)) == ["city"]


async def test_an_image(claude: AsyncAnthropic, model: str) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]
    message = await made(claude, model=model, messages=[{"role": "user", "content": content}])
    assert message.content[0].text.startswith("I see 1 image.")


async def test_tokens_are_counted(claude: AsyncAnthropic, model: str) -> None:
    short = await claude.messages.count_tokens(model=model, messages=[user("one")])
    long = await claude.messages.count_tokens(
        model=model,
        messages=[user("one two three " * 50)],
        tools=[WEATHER],
        system=[{"type": "text", "text": "Be brief."}],
        thinking=THINK,
    )
    assert 0 < short.input_tokens < long.input_tokens


async def test_models_are_listed(claude: AsyncAnthropic) -> None:
    listed = [model async for model in claude.models.list(limit=2)]
    names = [model.id for model in listed]
    assert {name.removesuffix(":latest") for name in names} >= set(MODELS.values())
    assert len(set(names)) == len(names) > 2
    assert all(model.type == "model" and model.created_at.year > 2000 for model in listed)
    one = await claude.models.retrieve(MODELS["chat"])
    assert (one.id, one.display_name) == (MODELS["chat"], MODELS["chat"])
    with pytest.raises(anthropic.NotFoundError):
        await claude.models.retrieve("nobody")


async def test_errors(claude: AsyncAnthropic, base_url: str, model: str) -> None:
    ask: Any = {"model": model, "max_tokens": 10, "messages": [user("Hi")]}
    with pytest.raises(anthropic.NotFoundError) as missing:
        await claude.messages.create(**{**ask, "model": "nobody"})
    body: Any = missing.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "not_found_error"
    assert (
        body["request_id"]
        == missing.value.request_id
        == missing.value.response.headers["request-id"]
    )
    with pytest.raises(anthropic.BadRequestError) as bad:
        await claude.messages.create(**ask, extra_body={"max_tokens": None})
    body = bad.value.body
    assert body["error"] == {
        "type": "invalid_request_error",
        "message": "max_tokens: Field required",
    }
    assert bad.value.request_id
    async with AsyncAnthropic(base_url=base_url, api_key="sk-wrong", max_retries=0) as other:
        with pytest.raises(anthropic.AuthenticationError) as refused:
            await other.messages.create(**ask)
    body = refused.value.body
    assert body["error"]["type"] == "authentication_error"
    assert body["request_id"] == refused.value.request_id is not None
    assert "sk-wrong" not in str(body)


async def test_a_token_will_do(base_url: str, model: str) -> None:
    """As clients behind a gateway send it; with both, the token counts."""
    ask: Any = {"model": model, "max_tokens": 10, "messages": [user("Hi")]}
    async with AsyncAnthropic(base_url=base_url, auth_token=KEY, max_retries=0) as client:
        await client.messages.create(**ask)
    both = {"Authorization": f"Bearer {KEY}", "x-api-key": "sk-wrong"}
    other = {"Authorization": "Bearer sk-wrong", "x-api-key": KEY}
    async with http_client() as http:
        for headers, status in ((both, 200), (other, 401)):
            async with http.post(f"{base_url}/v1/messages", json=ask, headers=headers) as response:
                assert response.status == status


async def test_a_limit_is_an_error_of_its_own() -> None:
    key = {"name": "team-a", "key": KEY, "limits": {"requests_per_minute": 1}}
    async with (
        simulated("chat") as endpoints,
        routed(*endpoints, auth={"keys": [key]}) as url,
        AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as client,
    ):
        ask: Any = {"model": MODELS["chat"], "max_tokens": 10, "messages": [user("Hi")]}
        await client.messages.create(**ask)
        with pytest.raises(anthropic.RateLimitError) as refused:
            await client.messages.create(**ask)
        body: Any = refused.value.body
        assert body["error"]["type"] == "rate_limit_error"
        assert int(refused.value.response.headers["Retry-After"]) > 0
        assert refused.value.request_id == body["request_id"]


async def test_a_hit_of_the_cache_is_the_same_message(model: str) -> None:
    async with (
        simulated(*DIALECTS) as endpoints,
        routed(
            *endpoints, auth={"keys": [{"name": "team-a", "key": KEY}]}, cache={"mode": "always"}
        ) as url,
        AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as client,
    ):
        ask: Any = {
            "model": model,
            "max_tokens": 20_000,
            "messages": [user("What is the weather in Paris?")],
            "tools": [WEATHER],
            "thinking": THINK,
        }
        first = await client.with_options(timeout=20).messages.create(**ask)
        raw = await client.with_options(timeout=20).messages.with_raw_response.create(**ask)
        assert raw.headers["X-Cache"] == "HIT"
        hit = await raw.parse()
        async with client.messages.stream(**ask) as stream:
            streamed = await stream.get_final_message()
        assert first.content == hit.content == streamed.content
        assert first.stop_reason == hit.stop_reason == streamed.stop_reason == "tool_use"
        assert len({first.id, hit.id, streamed.id}) == 3


async def test_stop_sequences_are_kept_or_named(claude: AsyncAnthropic, model: str) -> None:
    raw = await claude.messages.with_raw_response.create(
        model=model,
        max_tokens=100,
        messages=[user("Count to 9")],
        stop_sequences=["5"],
        extra_body={"top_k": 40},
    )
    message = await raw.parse()
    block = message.content[0]
    assert block.type == "text"
    assert message.stop_reason == "end_turn"
    if model == MODELS["responses"]:
        assert raw.headers["X-Pointsman-Dropped-Parameters"] == "top_k, stop_sequences"
        assert block.text.endswith("9")
    else:
        assert block.text.rstrip() == "1, 2, 3, 4,"
