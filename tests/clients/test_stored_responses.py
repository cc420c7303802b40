"""Stored responses and chains of them, as OpenAI's own client sees them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import FunctionToolParam, Response

from tests.clients.conftest import KEY
from tests.support.account import Account
from tests.support.fleet import MODELS, routed, simulated

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


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the client streams."""
    answer: bool = request.param
    return answer


async def ask(client: AsyncOpenAI, stream: bool, **request: Any) -> Response:
    """The response, as it was when it was complete."""
    answer: Any = await client.responses.create(stream=stream, **request)
    if stream:
        events = [event async for event in answer]
        answer = events[-1].response
    assert isinstance(answer, Response)
    return answer


def text_of(item: Any) -> str:
    """The text of a message that a list has."""
    (part,) = item.content
    text: str = part.text
    return text


async def test_what_was_answered_is_retrieved(
    keeper: AsyncOpenAI, model: str, stream: bool
) -> None:
    answered = await ask(
        keeper,
        stream,
        model=model,
        input="Why? \U0001f914",
        instructions="Be brief.",
        metadata={"näme": "\U0001f30d"},
        reasoning={"effort": "high", "summary": "auto"},
        max_output_tokens=6000,
    )
    assert [item.type for item in answered.output] == ["reasoning", "message"]
    kept = await keeper.responses.retrieve(answered.id)
    assert kept.to_dict() == answered.to_dict()
    (asked,) = (await keeper.responses.input_items.list(answered.id)).data
    assert text_of(asked) == "Why? \U0001f914"
    with pytest.raises(openai.BadRequestError, match="background=true") as caught:
        await keeper.responses.retrieve(answered.id, stream=True)
    assert caught.value.param == "stream"
    with pytest.raises(openai.BadRequestError, match="background=true"):
        await keeper.responses.cancel(answered.id)


async def test_a_deleted_one_is_gone_and_its_neighbours_are_not(
    keeper: AsyncOpenAI, model: str
) -> None:
    chain: list[Response] = []
    for number in range(3):
        previous = chain[-1].id if chain else openai.omit
        chain.append(
            await keeper.responses.create(
                model=model, input=f"Number {number}.", previous_response_id=previous
            )
        )
    first, gone, last = chain
    await keeper.responses.delete(gone.id)
    for call in (
        keeper.responses.retrieve(gone.id),
        keeper.responses.delete(gone.id),
        keeper.responses.cancel(gone.id),
    ):
        with pytest.raises(openai.NotFoundError, match=gone.id) as missing:
            await call
        assert (missing.value.type, missing.value.code) == ("invalid_request_error", None)
    with pytest.raises(openai.NotFoundError, match=gone.id):
        await keeper.responses.input_items.list(gone.id)
    with pytest.raises(openai.BadRequestError) as refused:
        await keeper.responses.create(model=model, input="x", previous_response_id=gone.id)
    assert refused.value.code == "previous_response_not_found"
    assert refused.value.param == "previous_response_id"

    assert (await keeper.responses.retrieve(first.id)).to_dict() == first.to_dict()
    assert (await keeper.responses.retrieve(last.id)).to_dict() == last.to_dict()
    after = await keeper.responses.create(model=model, input="x", previous_response_id=last.id)
    assert "This is turn 3 of our conversation." in after.output_text


async def test_what_is_not_to_be_stored_is_not(
    keeper: AsyncOpenAI, model: str, stream: bool
) -> None:
    first = await ask(keeper, stream, model=model, input="My name is Ann.")
    second = await ask(
        keeper,
        stream,
        model=model,
        input="What is my name?",
        previous_response_id=first.id,
        store=False,
    )
    assert second.output_text == "Your name is Ann."
    with pytest.raises(openai.NotFoundError, match=second.id):
        await keeper.responses.retrieve(second.id)
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(keeper, stream, model=model, input="x", previous_response_id=second.id)
    assert caught.value.code == "previous_response_not_found"


async def test_a_chain_carries_everything_but_the_instructions(
    keeper: AsyncOpenAI, model: str, stream: bool
) -> None:
    first = await ask(
        keeper, stream, model=model, input="My name is Ann.", instructions="Be formal."
    )
    assert "My instructions are “Be formal.”" in first.output_text
    second = await ask(
        keeper, stream, model=model, input="Tell me more.", previous_response_id=first.id
    )
    assert second.previous_response_id == first.id
    assert second.instructions is None
    assert "Be formal." not in second.output_text
    assert "This is turn 2 of our conversation." in second.output_text
    branches = [
        await ask(
            keeper,
            stream,
            model=model,
            input=said,
            previous_response_id=second.id,
            instructions="Be kind.",
        )
        for said in ("What is my name?", "Tell me the rest.")
    ]
    assert branches[0].output_text == "Your name is Ann."
    assert "“Be kind.”" in branches[1].output_text
    assert "This is turn 3 of our conversation." in branches[1].output_text


async def test_a_tools_result_finds_its_call_by_the_chain(
    keeper: AsyncOpenAI, model: str, stream: bool
) -> None:
    first = await ask(
        keeper, stream, model=model, input="What is the weather in Paris?", tools=[WEATHER]
    )
    (call,) = [item for item in first.output if item.type == "function_call"]
    city = json.loads(call.arguments)["city"]
    result = {"type": "function_call_output", "call_id": call.call_id}
    second = await ask(
        keeper,
        stream,
        model=model,
        input=[{**result, "output": json.dumps({"city": city, "sky": "clear"})}],
        previous_response_id=first.id,
        tools=[WEATHER],
    )
    assert second.output_text == f"According to get_weather: city is {city}, sky is clear."
    (kept,) = (await keeper.responses.input_items.list(second.id)).data
    assert kept.type == "function_call_output"
    assert kept.call_id == call.call_id
    third = await ask(
        keeper, stream, model=model, input="Say it again.", previous_response_id=second.id
    )
    assert "This is turn 2 of our conversation." in third.output_text


async def test_an_item_is_named_instead_of_sent(keeper: AsyncOpenAI, model: str) -> None:
    first = await keeper.responses.create(model=model, input="My name is Ann.")
    (said,) = (await keeper.responses.input_items.list(first.id)).data
    assert said.id is not None
    answer = await keeper.responses.create(
        model=model,
        input=[
            {"type": "item_reference", "id": said.id},
            {"role": "user", "content": "What is my name?"},
        ],
    )
    assert answer.output_text == "Your name is Ann."
    with pytest.raises(openai.NotFoundError) as caught:
        await keeper.responses.create(
            model=model, input=[{"type": "item_reference", "id": "msg_none"}]
        )
    assert caught.value.param == "input[0]"


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_input_items_page_by_page(keeper: AsyncOpenAI, order: Any) -> None:
    numbers = [str(number) for number in range(45)]
    answered = await keeper.responses.create(
        model=MODELS["chat"], input=[{"role": "user", "content": number} for number in numbers]
    )
    expected = numbers if order == "asc" else numbers[::-1]
    listing = keeper.responses.input_items.list
    for limit in (1, 7, 20, 44, 45, 100):
        seen = [item async for item in listing(answered.id, order=order, limit=limit)]
        assert [text_of(item) for item in seen] == expected
        assert len({item.id for item in seen}) == 45
    (middle,) = (await listing(answered.id, order=order, limit=1, after=seen[30].id or "")).data
    assert text_of(middle) == expected[31]
    default = await listing(answered.id)
    assert [text_of(item) for item in default.data] == numbers[:-21:-1]
    assert default.has_more
    for bad, param in (({"limit": 101}, "limit"), ({"after": "msg_none"}, "after")):
        with pytest.raises(openai.BadRequestError) as caught:
            await listing(answered.id, **bad)
        assert caught.value.param == param


async def test_the_blocking_client_pages_too(keeping_url: str) -> None:
    def use() -> None:
        with OpenAI(base_url=keeping_url, api_key=KEY, max_retries=0) as client:
            said: Any = [{"role": "user", "content": str(number)} for number in range(5)]
            answered = client.responses.create(model=MODELS["chat"], input=said)
            items = client.responses.input_items.list(answered.id, limit=2, order="asc")
            assert [text_of(item) for item in items] == list("01234")
            client.responses.delete(answered.id)
            with pytest.raises(openai.NotFoundError, match=answered.id):
                client.responses.retrieve(answered.id)

    await asyncio.to_thread(use)


async def test_for_others_it_is_not_there(keeper: AsyncOpenAI, stranger: AsyncOpenAI) -> None:
    answered = await keeper.responses.create(model=MODELS["chat"], input="My name is Ann.")
    (said,) = (await keeper.responses.input_items.list(answered.id)).data
    named: Any = [{"type": "item_reference", "id": said.id}]
    for call in (
        stranger.responses.retrieve(answered.id),
        stranger.responses.delete(answered.id),
        stranger.responses.cancel(answered.id),
        stranger.responses.create(model=MODELS["chat"], input=named),
    ):
        with pytest.raises(openai.NotFoundError):
            await call
    with pytest.raises(openai.BadRequestError) as caught:
        await stranger.responses.create(
            model=MODELS["chat"], input="What is my name?", previous_response_id=answered.id
        )
    assert caught.value.code == "previous_response_not_found"
    assert (await keeper.responses.retrieve(answered.id)).to_dict() == answered.to_dict()


async def test_the_history_is_counted(keeper: AsyncOpenAI, model: str) -> None:
    first = await keeper.responses.create(model=model, input="count to 200")
    count = keeper.responses.input_tokens.count
    alone = await count(model=model, input="Why?")
    chained = await count(model=model, input="Why?", previous_response_id=first.id)
    assert chained.input_tokens > alone.input_tokens + 100
    with pytest.raises(openai.BadRequestError) as caught:
        await count(model=model, input="Why?", previous_response_id="resp_none")
    assert caught.value.code == "previous_response_not_found"


async def test_the_router_compacts_where_no_endpoint_can(keeper: AsyncOpenAI, model: str) -> None:
    said = "My name is Ann. " + "I like boats. " * 50
    first = await keeper.responses.create(model=model, input=said)
    compacted = await keeper.responses.compact(
        model=model, previous_response_id=first.id, instructions="Be brief."
    )
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    assert compacted.usage.output_tokens > 0
    history: Any = [item.to_dict(warnings=False) for item in compacted.output]
    asked: Any = {"role": "user", "content": "What is my name?"}
    answered = await keeper.responses.create(model=model, input=[*history, asked])
    assert answered.output_text == "Your name is Ann."


async def test_a_long_chain_is_compacted_on_its_way(
    keeper: AsyncOpenAI, model: str, stream: bool
) -> None:
    first = await keeper.responses.create(model=model, input="My name is Ann. " + "la " * 9000)
    answered = await ask(
        keeper,
        stream,
        model=model,
        previous_response_id=first.id,
        input="What is my name?",
        context_management=[{"type": "compaction", "compact_threshold": 2000}],
    )
    assert answered.output[0].type == "compaction"
    assert answered.status == "completed"


async def test_a_compacted_conversation_goes_on(database_url: str) -> None:
    async with (
        Account("ann") as account,
        routed(account.endpoint, state={"url": database_url}) as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client,
    ):
        first = await client.responses.create(model="thinker", input="Begin.")
        second = await client.responses.create(
            model="thinker", input="Go on.", previous_response_id=first.id
        )
        compacted = await client.responses.compact(
            model="thinker",
            previous_response_id=second.id,
        )
        assert compacted.object == "response.compaction"
        assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
        # The SDK knows no message of the user among output items.
        history: Any = [item.to_dict(warnings=False) for item in compacted.output]
        third = await client.responses.create(
            model="thinker", input=[*history, {"role": "user", "content": "Go on."}]
        )
        assert third.output_text == "ann remembers 2"
        fourth = await client.responses.create(
            model="thinker", input="Go on.", previous_response_id=third.id
        )
        assert fourth.output_text == "ann remembers 3"


async def test_a_chain_moves_between_dialects(keeper: AsyncOpenAI, stream: bool) -> None:
    previous: Any = None
    said = ["My name is Ann.", "Tell me more.", "count to 3", "What is my name?"]
    models = [MODELS["chat"], MODELS["responses"], MODELS["ollama"], MODELS["responses"]]
    for text, model in zip(said, models, strict=True):
        answer = await ask(
            keeper,
            stream,
            model=model,
            input=text,
            previous_response_id=previous,
            reasoning={"effort": "low"},
        )
        previous = answer.id
    assert answer.output_text == "Your name is Ann."


async def test_a_chain_goes_on_after_a_restart(database_url: str) -> None:
    async with simulated("chat") as endpoints:
        previous: Any = None
        for turn in range(1, 4):
            async with (
                routed(*endpoints, state={"url": database_url}) as url,
                AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client,
            ):
                answer = await client.responses.create(
                    model=MODELS["chat"], input="Tell me.", previous_response_id=previous
                )
                previous = answer.id
                assert turn == 1 or f"This is turn {turn} of our" in answer.output_text
