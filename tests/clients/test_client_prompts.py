"""Stored prompts, as OpenAI's own client uses them."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.support.fleet import MODELS


async def stored(client: AsyncOpenAI, **fields: Any) -> dict[str, Any]:
    """A new prompt; the client knows no resource for it."""
    made: Any = await client.post("/prompts", body=fields, cast_to=object)
    assert isinstance(made, dict)
    return made


async def test_a_request_that_is_nothing_but_a_prompt(keeper: AsyncOpenAI, model: str) -> None:
    prompt = await stored(
        keeper,
        name="guide",
        model=model,
        instructions="Speak of {{ city }} in {{tone}} words.",
        input=[{"role": "user", "content": "Tell me about {{city}}."}],
        temperature=0.5,
    )
    variables: Any = {"city": "Paris", "tone": {"type": "input_text", "text": "plain"}}
    for name in (prompt["id"], "guide"):
        answer = await keeper.responses.create(prompt={"id": name, "variables": variables})
        assert "You said: “Tell me about Paris.”" in answer.output_text
        assert "“Speak of Paris in plain words.”" in answer.output_text
        assert answer.prompt is not None
        assert (answer.prompt.id, answer.prompt.version) == (prompt["id"], "1")
        assert answer.temperature == 0.5
        kept = await keeper.responses.retrieve(answer.id)
        assert kept.to_dict() == answer.to_dict()
        (asked,) = (await keeper.responses.input_items.list(answer.id)).data
        content: Any = asked.content  # type: ignore[union-attr]
        assert content[0].text == "Tell me about Paris."


async def test_what_the_request_says_wins(keeper: AsyncOpenAI, model: str) -> None:
    prompt = await stored(
        keeper, name="rules", model="gpt-none", instructions="Be {{how}}.", temperature=0.5
    )
    answer = await keeper.responses.create(
        model=model,
        input="Tell me.",
        prompt={"id": prompt["id"]},
        instructions="Be kind.",
        temperature=1.5,
    )
    assert "“Be kind.”" in answer.output_text
    assert answer.temperature == 1.5


async def test_a_version_stays_what_it_was(keeper: AsyncOpenAI) -> None:
    model = MODELS["chat"]
    prompt = await stored(keeper, name="rules", instructions="Be brief.")
    changed: Any = await keeper.put(
        f"/prompts/{prompt['id']}", body={"instructions": "Be kind."}, cast_to=object
    )
    assert changed["version"] == "2"
    for version, says in (("1", "Be brief."), ("2", "Be kind."), (None, "Be kind.")):
        named: Any = {"id": prompt["id"], "version": version}
        answer = await keeper.responses.create(model=model, input="Tell me.", prompt=named)
        assert f"“{says}”" in answer.output_text
        assert answer.prompt is not None
        assert answer.prompt.version == (version or "2")


@pytest.mark.parametrize("how", [{"stream": True}, {"background": True}])
async def test_streams_and_runs_have_them_too(
    keeper: AsyncOpenAI, model: str, how: dict[str, Any]
) -> None:
    prompt = await stored(keeper, name="teller", model=model, input="count to {{n}}")
    named: Any = {"id": prompt["id"], "variables": {"n": "4"}}
    conversation = await keeper.conversations.create()
    answer: Any = await keeper.responses.create(prompt=named, conversation=conversation.id, **how)
    if "stream" in how:
        events = [event async for event in answer]
        answer = events[-1].response
    else:
        events = [e async for e in await keeper.responses.retrieve(answer.id, stream=True)]
        answer = await keeper.responses.retrieve(answer.id)
        last: Any = events[-1]
        assert last.response.to_dict() == answer.to_dict()
    assert answer.output_text == "1, 2, 3, 4"
    assert len((await keeper.conversations.items.list(conversation.id)).data) == 2


async def test_what_is_refused(keeper: AsyncOpenAI, stranger: AsyncOpenAI) -> None:
    model = MODELS["chat"]
    prompt = await stored(keeper, name="rules", model=model, input="count to {{n}}")
    wrong_ones: list[tuple[Any, str]] = [
        ({"id": prompt["id"]}, "prompt.variables.n"),
        ({"id": prompt["id"], "variables": {"n": 4}}, "prompt.variables.n"),
        ({"version": "1"}, "prompt.id"),
        ({"id": prompt["id"], "version": "x"}, "prompt.version"),
    ]
    for named, param in wrong_ones:
        with pytest.raises(openai.BadRequestError) as caught:
            await keeper.responses.create(prompt=named)
        assert caught.value.param == param
    known: Any = {"id": prompt["id"], "variables": {"n": "4"}}
    unknown_ones: list[tuple[AsyncOpenAI, Any]] = [
        (keeper, {**known, "id": "pmpt_none"}),
        (keeper, {**known, "version": "9"}),
        (stranger, known),
        (stranger, {**known, "id": "rules"}),
    ]
    for client, unknown in unknown_ones:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.responses.create(prompt=unknown)
        assert missing.value.param == "prompt.id"
    await keeper.delete(f"/prompts/{prompt['id']}", cast_to=object)
    with pytest.raises(openai.NotFoundError):
        await keeper.responses.create(prompt=known)
    with pytest.raises(openai.BadRequestError) as wrong:
        await stored(keeper, name="x", input="y", previous_response_id="resp_1")
    assert wrong.value.param == "previous_response_id"
