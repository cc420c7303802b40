"""Encrypted reasoning: bound to the account that issued it, it survives a stateless chain.

Two native endpoints with different keys serve the same model. Each refuses the other's blobs and
item ids; the client is OpenAI's own and sends the whole history back as it came.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from tests.support.account import THOUGHT, Account
from tests.support.fleet import routed, simulated
from tests.support.waiting import until

DROPPED = "X-Pointsman-Reasoning-Dropped"
ENDPOINT = "X-Pointsman-Endpoint"

_beginnings = itertools.count()


class Chain:
    """A stateless client: it keeps the history and sends all of it with every turn."""

    def __init__(self, client: AsyncOpenAI, stream: bool) -> None:
        self.history: list[Any] = []
        self.headers: Any = {}
        self._client = client
        self._stream = stream

    async def begin(self) -> str:
        """Say what nobody has said before: it has no endpoint yet."""
        return await self.say(f"Begin {next(_beginnings)}.")

    async def say(self, text: str) -> str:
        """One turn; the text of the answer."""
        self.history.append({"role": "user", "content": text})
        response = await self._ask()
        self.history += response.output
        return response.output_text

    async def _ask(self) -> Response:
        raw = await self._client.responses.with_raw_response.create(
            model="thinker",
            input=self.history,
            store=False,
            include=["reasoning.encrypted_content"],
            stream=self._stream,
        )
        self.headers = raw.headers
        answer: Any = raw.parse()
        if not self._stream:
            assert isinstance(answer, Response)
            return answer
        done = []
        async for event in answer:
            if event.type == "response.output_item.done":
                done.append(event.item)
        assert event.type == "response.completed"
        final: Response = event.response
        assert [item.to_dict() for item in done] == [item.to_dict() for item in final.output]
        return final


@pytest.fixture
async def accounts() -> AsyncIterator[tuple[Account, Account]]:
    """Two accounts of the same provider."""
    async with Account("ann") as ann, Account("ben") as ben:
        yield ann, ben


@pytest.fixture
async def client(accounts: tuple[Account, Account]) -> AsyncIterator[AsyncOpenAI]:
    """A client of a router in front of both."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(routed(*(a.endpoint for a in accounts)))
        yield await stack.enter_async_context(
            AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
        )


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the client streams."""
    answer: bool = request.param
    return answer


def received(accounts: tuple[Account, Account]) -> list[dict[str, Any]]:
    return [body for account in accounts for body in account.received]


async def test_a_chain_stays_with_the_account_that_began_it(
    accounts: tuple[Account, Account], client: AsyncOpenAI, stream: bool
) -> None:
    begun_by = set()
    for _ in range(12):
        chain = Chain(client, stream)
        first = (await chain.begin()).split()[0]
        begun_by.add(first)
        for turn in range(1, 4):
            assert await chain.say("Go on.") == f"{first} remembers {turn}"
            assert chain.headers[ENDPOINT] == first
            assert DROPPED not in chain.headers
    assert begun_by == {"ann", "ben"}  # beginnings are spread


async def test_what_goes_up_has_no_ids_and_the_blobs_as_they_were_issued(
    accounts: tuple[Account, Account], client: AsyncOpenAI, stream: bool
) -> None:
    chain = Chain(client, stream)
    issuer = (await chain.begin()).split()[0]
    await chain.say("Go on.")
    blob = next(a for a in accounts if a.name == issuer).issue(THOUGHT)
    reasoning, message, question = received(accounts)[-1]["input"][1:]
    assert reasoning == {"type": "reasoning", "summary": [], "encrypted_content": blob}
    assert "id" not in message
    assert message["type"] == "message"
    assert question["content"] == "Go on."
    for body in received(accounts):
        assert body["store"] is False
        assert body["include"] == ["reasoning.encrypted_content"]
    # The client sees it marked, and the mark names no key.
    (seen,) = [item.encrypted_content for item in chain.history[1:2]]
    assert seen.endswith(blob)
    assert seen != blob
    assert "sk-" not in seen


async def test_a_chain_stays_also_where_the_other_account_has_less_to_do(
    accounts: tuple[Account, Account], client: AsyncOpenAI, stream: bool
) -> None:
    chain = Chain(client, stream)
    issuer = (await chain.begin()).split()[0]
    busy = next(a for a in accounts if a.name == issuer)
    busy.gate.clear()
    others = [asyncio.create_task(_copy(chain).say("Go on.")) for _ in range(8)]
    await until(lambda: len(busy.received) == 9)
    own = asyncio.create_task(chain.say("Go on."))
    await until(lambda: len(busy.received) == 10)
    busy.gate.set()
    answers = await asyncio.gather(own, *others)
    assert set(answers) == {f"{issuer} remembers 1"}


def _copy(chain: Chain) -> Chain:
    copy = Chain(chain._client, chain._stream)
    copy.history = list(chain.history)
    return copy


async def test_with_the_issuer_down_the_reasoning_is_dropped_and_the_answer_works(
    stream: bool,
) -> None:
    async with AsyncExitStack() as stack:
        ann, ben = Account("ann"), Account("ben")
        await stack.enter_async_context(ben)
        anns = await stack.enter_async_context(AsyncExitStack())
        await anns.enter_async_context(ann)
        url = await stack.enter_async_context(routed(ann.endpoint, ben.endpoint))
        client = await stack.enter_async_context(
            AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
        )
        chain = Chain(client, stream)
        while not (await chain.begin()).startswith("ann"):
            chain = Chain(client, stream)
        await chain.say("Go on.")
        await anns.aclose()

        assert await chain.say("Go on.") == "ben remembers 0"
        assert chain.headers[ENDPOINT] == "ben"
        assert chain.headers[DROPPED] == "2"
        # From here on the chain has two issuers: the last one is preferred.
        await anns.enter_async_context(ann)
        assert await chain.say("Go on.") == "ben remembers 1"
        assert chain.headers[DROPPED] == "2"
        async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics") as metrics:
            counted = 'pointsman_reasoning_dropped_total{endpoint="ben"} 4.0'
            assert counted in (await metrics.text()).splitlines()


async def test_an_issuer_that_fails_is_not_asked_again_and_again(stream: bool) -> None:
    async with AsyncExitStack() as stack:
        ann = await stack.enter_async_context(Account("ann"))
        ben = await stack.enter_async_context(Account("ben"))
        url = await stack.enter_async_context(routed(ann.endpoint, ben.endpoint))
        client = await stack.enter_async_context(
            AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
        )
        chain = Chain(client, stream)
        while not (await chain.begin()).startswith("ann"):
            chain = Chain(client, stream)
        ann.failing = True
        asked = len(ann.received)
        assert await chain.say("Go on.") == "ben remembers 0"
        assert chain.headers[DROPPED] == "1"
        assert chain.headers["X-Pointsman-Attempts"] == "2"
        assert len(ann.received) == asked + 1


async def test_a_blob_from_outside_passes_as_it_came(stream: bool) -> None:
    async with AsyncExitStack() as stack:
        ann = await stack.enter_async_context(Account("ann"))
        url = await stack.enter_async_context(routed(ann.endpoint))
        client = await stack.enter_async_context(
            AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
        )
        blob = ann.issue("Something thought before Pointsman came.")
        chain = Chain(client, stream)
        reasoning = {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": blob}
        chain.history = [{"role": "user", "content": "Begin."}, reasoning]
        assert await chain.say("Go on.") == "ann remembers 1"
        assert DROPPED not in chain.headers

        chain.history = [{**reasoning, "encrypted_content": "forged.beyond-recognition"}]
        with pytest.raises(openai.BadRequestError) as caught:
            await chain.say("Go on.")
        assert caught.value.code == "invalid_encrypted_content"


async def test_other_dialects_take_a_history_with_encrypted_reasoning(
    accounts: tuple[Account, Account], client: AsyncOpenAI, stream: bool
) -> None:
    chain = Chain(client, stream)
    await chain.begin()
    async with simulated("chat", "ollama", models=["thinker"]) as endpoints:
        for endpoint in endpoints:
            async with (
                routed(endpoint) as url,
                AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as elsewhere,
            ):
                moved = Chain(elsewhere, stream)
                moved.history = list(chain.history)
                assert "This is turn 2" in await moved.say("Go on.")
                assert moved.headers[DROPPED] == "1"


async def test_without_being_asked_for_it_no_blob_is_sent(
    accounts: tuple[Account, Account], client: AsyncOpenAI
) -> None:
    response = await client.responses.create(model="thinker", input="Hi", store=False)
    assert all(getattr(item, "encrypted_content", None) is None for item in response.output)
    assert "include" not in received(accounts)[-1]
