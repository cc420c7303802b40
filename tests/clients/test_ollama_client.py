"""Ollama's own Python client, unchanged, in front of every dialect over real sockets."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import ollama
import pytest
from ollama import AsyncClient

from tests.clients.conftest import KEY
from tests.support.admin import ADMIN, ADMIN_KEY
from tests.support.fleet import DIALECTS, http_client, routed, simulated
from tests.support.waiting import until

QUESTION = {"role": "user", "content": "What is the weather in Paris?"}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n-rest").decode()
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The city.

    """
    return f"sunny in {city}"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """The base URL of a router that wants ``KEY``, or the admin key."""
    keys = {"keys": [{"name": "team-a", "key": KEY}]}
    async with (
        simulated(*DIALECTS) as endpoints,
        routed(*endpoints, auth=keys, admin=ADMIN) as url,
    ):
        yield url


def client_of(url: str, key: str) -> AsyncClient:
    """A client with this key."""
    return AsyncClient(url, headers={"Authorization": f"Bearer {key}"})


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    """Ollama's client, pointed at the router."""
    async with client_of(url, KEY) as client:
        yield client


@pytest.fixture
async def admin(url: str) -> AsyncIterator[AsyncClient]:
    """The same with the admin key."""
    async with client_of(url, ADMIN_KEY) as client:
        yield client


async def test_chat(client: AsyncClient, model: str) -> None:
    answer = await client.chat(
        model,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}],
        options={"temperature": 0.5, "num_ctx": 4096},
    )
    assert answer.model == model
    assert "My instructions are “Be brief.”" in (answer.message.content or "")
    assert (answer.done, answer.done_reason) == (True, "stop")
    assert answer.prompt_eval_count
    assert answer.eval_count
    assert answer.total_duration is not None
    assert answer.eval_duration is not None
    assert 0 < answer.eval_duration <= answer.total_duration
    assert answer.message.tool_calls is None
    assert answer.message.thinking is None


async def test_stream(client: AsyncClient, model: str) -> None:
    stream = await client.chat(
        model, messages=[{"role": "user", "content": "count to 9"}], stream=True
    )
    parts = [part async for part in stream]
    assert "".join(part.message.content or "" for part in parts) == "1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert len(parts) > 5
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].done_reason == "stop"
    assert parts[-1].eval_count


async def test_an_answer_that_is_cut(client: AsyncClient, model: str) -> None:
    answer = await client.chat(
        model,
        messages=[{"role": "user", "content": "count to 500"}],
        options={"num_predict": 16},
    )
    assert answer.done_reason == "length"
    assert (answer.message.content or "").startswith("1, 2, 3")


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking(client: AsyncClient, model: str, stream: bool) -> None:
    message = {"role": "user", "content": "Why?"}
    if stream:
        parts = [p async for p in await client.chat(
            model, messages=[message], think="high", stream=True
        )]  # fmt: skip
        thinking = "".join(part.message.thinking or "" for part in parts)
        first_text = next(i for i, part in enumerate(parts) if part.message.content)
        assert not any(part.message.thinking for part in parts[first_text:])
    else:
        answer = await client.chat(model, messages=[message], think=True)
        thinking = answer.message.thinking or ""
        assert answer.message.content
    assert thinking.startswith("Let me see what is asked")


async def test_no_thinking(client: AsyncClient, model: str) -> None:
    answer = await client.chat(model, messages=[QUESTION], think=False)
    assert not answer.message.thinking


@pytest.mark.parametrize("stream", [False, True])
async def test_tools(client: AsyncClient, model: str, stream: bool) -> None:
    messages: list[Any] = [QUESTION]
    if stream:
        parts = [p async for p in await client.chat(
            model, messages=messages, tools=[get_weather], stream=True
        )]  # fmt: skip
        [message] = [part.message for part in parts if part.message.tool_calls]
    else:
        message = (await client.chat(model, messages=messages, tools=[get_weather])).message
    [call] = message.tool_calls or []
    assert call.function.name == "get_weather"
    assert isinstance(call.function.arguments["city"], str)
    # The client does not keep the id of a call: its result has the tool's name only.
    result = get_weather(**call.function.arguments)
    messages += [message, {"role": "tool", "content": result, "tool_name": "get_weather"}]
    answer = await client.chat(model, messages=messages, tools=[get_weather])
    assert answer.message.content == f"According to get_weather: {result}"


async def test_format(client: AsyncClient, model: str) -> None:
    messages = [{"role": "user", "content": "My name is Ada and I am 36 years old."}]
    answer = await client.chat(model, messages=messages, format=PERSON)
    person = json.loads(answer.message.content or "")
    assert isinstance(person["name"], str)
    assert isinstance(person["age"], int)
    answer = await client.chat(model, messages=messages, format="json")
    assert isinstance(json.loads(answer.message.content or ""), dict)


async def test_images(client: AsyncClient, model: str) -> None:
    answer = await client.chat(
        model, messages=[{"role": "user", "content": "What is it?", "images": [PNG]}]
    )
    assert (answer.message.content or "").startswith("I see 1 image. ")


async def test_generate(client: AsyncClient, model: str) -> None:
    answer = await client.generate(model, "count to 3", system="Be brief.", keep_alive="5m")
    assert answer.response == "1, 2, 3"
    assert (answer.done, answer.done_reason) == (True, "stop")
    stream = await client.generate(model, "count to 3", think=True, stream=True)
    parts = [part async for part in stream]
    assert "".join(part.response or "" for part in parts) == "1, 2, 3"
    assert "".join(part.thinking or "" for part in parts).startswith("Let me see")
    assert parts[-1].done_reason == "stop"


async def test_embed(client: AsyncClient) -> None:
    answer = await client.embed("sim-embed", input=["one", "two"])
    first, second = answer.embeddings
    assert len(first) == len(second) > 1
    assert first != second
    assert answer.prompt_eval_count
    [alone] = (await client.embed("sim-embed", input="one")).embeddings
    assert alone == pytest.approx(first)
    older = await client.embeddings("sim-embed", "one")
    assert older.embedding == pytest.approx(first)
    assert (await client.embed("sim-embed", input=[])).embeddings == []


async def test_models(client: AsyncClient) -> None:
    listed = {one.model: one for one in (await client.list()).models}
    assert {"sim-native", "sim-chat", "sim-llama:latest"} <= set(listed)
    told, made_up = listed["sim-llama:latest"], listed["sim-chat"]
    assert (told.size, made_up.size) == (4_000_000_000, 0)
    assert told.details is not None
    assert told.details.quantization_level == "Q4_K_M"
    assert all(len(one.digest or "") >= 12 and one.modified_at for one in listed.values())


async def test_what_is_in_memory(client: AsyncClient, admin: AsyncClient) -> None:
    assert (await client.ps()).models == []
    assert (await client.generate("sim-llama")).done_reason == "load"

    async def running() -> Any:
        return (await client.ps()).models

    async def nothing() -> bool:
        return not await running()

    [one] = await until(running)
    assert (one.model, one.size_vram, one.context_length) == (
        "sim-llama:latest", 4_000_000_000, 32_768
    )  # fmt: skip
    assert one.expires_at is not None
    with pytest.raises(ollama.ResponseError, match="admin key") as caught:
        await client.generate("sim-llama", keep_alive=0)
    assert caught.value.status_code == 403
    assert (await admin.chat("sim-llama", keep_alive=0)).done_reason == "unload"
    await until(nothing)


async def test_a_load_of_what_needs_none(client: AsyncClient) -> None:
    assert (await client.chat("sim-native")).done_reason == "load"


async def test_show(client: AsyncClient) -> None:
    told = await client.show("sim-llama")
    assert told.capabilities == ["completion", "tools", "thinking", "vision"]
    assert told.modelinfo is not None
    assert told.modelinfo["simulated.context_length"] == 32_768
    known = await client.show("sim-chat")
    assert known.capabilities == ["completion", "tools"]
    assert known.details is not None


async def test_managing(client: AsyncClient, admin: AsyncClient) -> None:
    progress = [one async for one in await admin.pull("tiny", stream=True)]
    assert progress[-1].status == "success"
    assert any(one.completed and one.total and one.digest for one in progress)
    assert (await admin.copy("tiny", "little")).status == "success"
    assert (await admin.create("small", from_="tiny")).status == "success"
    assert (await admin.push("small")).status == "success"
    assert (await admin.delete("tiny")).status == "success"

    async def there() -> bool:
        listed = {one.model for one in (await client.list()).models}
        return {"small:latest", "little:latest"} <= listed and "tiny:latest" not in listed

    await until(there)
    answer = await client.chat("little", messages=[{"role": "user", "content": "count to 2"}])
    assert answer.message.content == "1, 2"


async def test_errors(client: AsyncClient, admin: AsyncClient, url: str) -> None:
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(ollama.ResponseError, match="'nope' does not exist") as caught:
        await client.chat("nope", messages=messages)
    assert caught.value.status_code == 404
    stream = await client.chat("nope", messages=messages, stream=True)
    with pytest.raises(ollama.ResponseError, match="'nope' does not exist") as caught:
        await anext(stream)
    assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match=r"options\.top_k") as caught:
        await client.generate("sim-chat", "hi", options={"top_k": 1.5})
    assert caught.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match="'suffix'") as caught:
        await client.generate("sim-chat", "hi", suffix="x")
    assert caught.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match="not found") as caught:
        await admin.delete("nope")
    assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="file does not exist"):
        await admin.pull("no-such-model")
    async with client_of(url, "sk-wrong") as stranger:
        with pytest.raises(ollama.ResponseError, match="Incorrect API key") as caught:
            await stranger.list()
    assert caught.value.status_code == 401
    with pytest.raises(ollama.ResponseError, match="admin key") as caught:
        await client.pull("tiny")
    assert caught.value.status_code == 401
    with pytest.raises(ollama.ResponseError, match="admin key is for managing") as caught:
        await admin.chat("sim-chat", messages=messages)
    assert caught.value.status_code == 401


async def test_what_open_webui_does(url: str) -> None:
    """Its requests, one after the other, as its backend makes them."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with http_client(headers=headers) as http:
        async with http.get(f"{url}/api/version") as reply:
            version = (await reply.json())["version"]
        assert tuple(map(int, version.split("."))) >= (0, 12, 11)
        async with http.get(f"{url}/api/tags") as reply:
            models = (await reply.json())["models"]
        assert {"name", "model", "modified_at", "size", "digest", "details"} <= set(models[0])
        async with http.get(f"{url}/api/ps") as reply:
            assert await reply.json() == {"models": []}
        for model in models:
            async with http.post(f"{url}/api/show", json={"model": model["model"]}) as reply:
                shown = await reply.json()
            assert shown["capabilities"]
            if "completion" not in shown["capabilities"]:
                continue
            payload = {
                "model": model["model"],
                "messages": [{"role": "user", "content": "count to 4"}],
                "stream": True,
                "keep_alive": "5m",
                "options": {"temperature": 0.7},
            }
            async with http.post(f"{url}/api/chat", json=payload) as reply:
                assert reply.headers["Content-Type"] == "application/x-ndjson"
                assert reply.headers["X-Pointsman-Dropped-Parameters"] == "keep_alive"
                lines = [json.loads(line) async for line in reply.content]
            assert "".join(line["message"]["content"] for line in lines) == "1, 2, 3, 4"
            assert lines[-1]["done"] is True
        payload = {"model": "sim-embed:latest", "input": ["one"], "truncate": True}
        async with http.post(f"{url}/api/embed", json=payload) as reply:
            assert len((await reply.json())["embeddings"]) == 1
