"""Encrypted reasoning that the client does not ask for survives a stored chain, unseen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from tests.support.account import THOUGHT, Account
from tests.support.fleet import routed

INCLUDE = "reasoning.encrypted_content"


@pytest.fixture
async def account() -> AsyncIterator[Account]:
    """A provider that guards its encrypted reasoning."""
    async with Account("ann") as served:
        yield served


@pytest.fixture
async def client(account: Account) -> AsyncIterator[AsyncOpenAI]:
    """A client of a router in front of it."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(routed(account.endpoint))
        yield await stack.enter_async_context(
            AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
        )


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the client streams."""
    answer: bool = request.param
    return answer


async def ask(client: AsyncOpenAI, stream: bool, **request: Any) -> tuple[Response, list[Any], Any]:
    """The response, everything that was seen of it, and the headers."""
    raw = await client.responses.with_raw_response.create(
        model="thinker", stream=stream, **{"input": "Go on.", **request}
    )
    answer: Any = raw.parse()
    if not stream:
        assert isinstance(answer, Response)
        return answer, [answer.to_dict()], raw.headers
    events = [event async for event in answer]
    return events[-1].response, [event.to_dict() for event in events], raw.headers


async def test_a_chain_keeps_it(account: Account, client: AsyncOpenAI, stream: bool) -> None:
    previous = None
    for turn in range(4):
        response, seen, _ = await ask(client, stream, previous_response_id=previous)
        assert response.output_text == f"ann remembers {turn}"
        stored = await client.responses.retrieve(response.id)
        assert account.issue(THOUGHT) not in str([*seen, stored.to_dict()])
        previous = response.id
    assert [body["include"] for body in account.received] == [[INCLUDE]] * 4
    sent = [item for item in account.received[-1]["input"] if item.get("type") == "reasoning"]
    blob = account.issue(THOUGHT)
    assert sent == [{"type": "reasoning", "summary": [], "encrypted_content": blob}] * 3


async def test_items_sent_back_get_it_again(
    account: Account, client: AsyncOpenAI, stream: bool
) -> None:
    response, _, _ = await ask(client, stream)
    history = [*(item.to_dict() for item in response.output), {"role": "user", "content": "x"}]
    response, seen, _ = await ask(client, stream, input=history)
    assert response.output_text == "ann remembers 1"
    assert account.issue(THOUGHT) not in str(seen)


async def test_who_asks_for_it_sees_it(account: Account, client: AsyncOpenAI, stream: bool) -> None:
    first, _, _ = await ask(client, stream)
    second, seen, _ = await ask(client, stream, previous_response_id=first.id, include=[INCLUDE])
    assert second.output_text == "ann remembers 1"
    assert account.issue(THOUGHT) in str(seen)


async def test_a_model_without_it_is_asked_once(
    account: Account, client: AsyncOpenAI, stream: bool
) -> None:
    account.encrypts = False
    previous = None
    for _ in range(3):
        response, _, headers = await ask(client, stream, previous_response_id=previous)
        assert response.output_text == "ann remembers 0"
        assert headers["X-Pointsman-Attempts"] == "1"
        previous = response.id
    asked = [body.get("include") for body in account.received]
    assert asked == [[INCLUDE], None, None, None]
    with pytest.raises(openai.BadRequestError, match="Encrypted content is not supported"):
        await ask(client, stream, include=[INCLUDE])
