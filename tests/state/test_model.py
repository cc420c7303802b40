"""Random histories of chains, conversations, deletes and concurrent turns, against a plain model.

After every step everything that can be seen of the state is compared with the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import orjson
import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from router.dialects.paging import Page
from router.state.database import Database
from router.state.items import ENCRYPTED
from router.state.statement import Statement, StatementStep
from tests.support.state import opened, postgresql_url
from tests.support.state_model import Conversation, Model, Node, revealed
from tests.support.state_world import ROUTERS, World
from tests.support.stored import alive

OWNERS = ("ann", "bob")
TABLES = ("responses", "conversations")

STEPS = 40
KINDS = {
    "respond": 12,
    "begin": 2,
    "finish": 3,
    "hold": 3,
    "commit": 3,
    "delete": 7,
    "purge": 1,
    "create": 1,
    "add": 2,
    "update": 1,
    "delete_conversation": 1,
    "delete_item": 2,
    "together": 6,
}
"""The operations of ``World``, and how often each is chosen."""

Opened = tuple[asyncio.Runner, Database]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def opened_once(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    """One database of each kind for all examples, and the loop that it lives on."""
    path = tmp_path_factory.mktemp("state") / "state.db"
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        database = runner.run(_open(stack, request.param, path))
        try:
            yield runner, database
        finally:
            runner.run(stack.aclose())


async def _open(stack: AsyncExitStack, kind: str, path: Path) -> Database:
    url = f"sqlite:///{path}"
    if kind == "postgresql":
        url = await stack.enter_async_context(postgresql_url())
    return await stack.enter_async_context(opened(url))


@settings(max_examples=12, deadline=None, phases=[Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**64))
def test_the_state_shows_what_the_model_shows(opened_once: Opened, seed: int) -> None:
    runner, database = opened_once
    runner.run(_example(database, Random(seed)))


async def _example(database: Database, random: Random) -> None:
    await database.write(
        *(StatementStep(Statement(f"DELETE FROM {table}"), ({},)) for table in TABLES)
    )
    await alive(database, *ROUTERS)
    world = World(database, random)
    for owner in OWNERS:
        await world.create(owner)
    names = random.choices([*KINDS], [*KINDS.values()], k=STEPS)
    for step, name in enumerate(names):
        owner = random.choice(("ann", "ann", "ann", "bob"))
        note(f"{step}: {name} {owner}")
        await getattr(world, name)(owner)
        for owner in OWNERS:
            await _compare(world, owner)


async def _compare(world: World, owner: str) -> None:
    """Everything that this owner can see is as in the model."""
    model = world.model
    await _compare_responses(world, model, owner)
    everything = {item for each in OWNERS for item in model.items(each)} | world.forgotten
    assert await world.responses.find_items(owner, everything) == model.items(owner)
    world.forgotten |= everything
    listed = model.listed(owner)
    assert await _pages(world, owner, None, Page(2)) == [c.id for c in reversed(listed)]
    for conversation in model.conversations.values():
        await _compare_conversation(world, owner, conversation, conversation in listed)


async def _compare_responses(world: World, model: Model, owner: str) -> None:
    nodes = model.responses.values()
    await asyncio.gather(*(_compare_response(world, owner, node) for node in nodes))
    mine = [node.id for node in nodes if node.owner == owner and node.visible]
    assert [row.id async for row in world.responses.export(owner)] == sorted(mine)


async def _compare_response(world: World, owner: str, node: Node) -> None:
    found = await world.responses.get(owner, node.id)
    chain = await world.responses.history(owner, node.id)
    if node.owner != owner or not node.visible:
        assert found is None
        assert chain is None
        return
    assert found is not None
    assert chain is not None
    assert orjson.loads(found.public())["output"] == node.output
    shown = orjson.loads(found.public({ENCRYPTED}))
    assert shown["output"] == [revealed(item, node.encrypted_reasoning) for item in node.output]
    assert (shown["status"], shown["created_at"]) == (node.status, node.created_at)
    assert found.input_items() == node.given
    assert (chain.status, chain.items) == (node.status, world.model.chain(node.id))


async def _compare_conversation(
    world: World, owner: str, conversation: Conversation, visible: bool
) -> None:
    found = await world.conversations.get(owner, conversation.id)
    history = await world.conversations.history(owner, conversation.id)
    if not visible:
        assert found is None
        assert history is None
        assert await world.conversations.items(owner, conversation.id, Page()) is None
        return
    assert found is not None
    assert found.metadata == conversation.metadata
    assert history == [
        revealed(item, conversation.encrypted_reasoning) for item in conversation.items
    ]
    names = [item["id"] for item in conversation.items]
    upward = Page(3, descending=False)
    assert await _pages(world, owner, conversation.id, upward) == names
    assert await _pages(world, owner, conversation.id, Page(4)) == names[::-1]
    for item in conversation.items[:2]:
        assert await world.conversations.item(owner, conversation.id, item["id"]) == item


async def _pages(world: World, owner: str, conversation: str | None, page: Page) -> list[str]:
    """The ids in a list of conversations, or in a conversation, gathered page by page."""
    found: list[str] = []
    more = True
    while more:
        page = Page(page.limit, page.descending, found[-1] if found else None)
        if conversation is None:
            listed, more = await world.conversations.page(owner, page)
            found += [one.id for one in listed]
        else:
            part = await world.conversations.items(owner, conversation, page)
            assert part is not None
            found += [item["id"] for item in part[0]]
            more = part[1]
    return found
