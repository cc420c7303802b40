"""Operations on the state and on its model alike, for ``tests/state/test_model.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

from router.dialects.paging import Page
from router.state.conversations import ConversationStore
from router.state.database import Database
from router.state.responses import ResponseStore
from router.state.statement import Statement
from router.state.turn_lock import TurnLock
from tests.support.state_model import Conversation, Model, Node
from tests.support.stored import alive, ids_of, message, reasoning

__all__ = ["ROUTERS", "World"]

ROUTERS = ("r1", "r2")
SECONDS = 30.0
ACTIONS = ("commit", "commit", "commit", "abandon", "cancel", "cancel", "add", "add", "drop")
_HELD = Statement("SELECT id, turn_holder FROM conversations WHERE turn_holder IS NOT NULL")


class World:
    """The stores, the model, and the operations that change both."""

    def __init__(self, database: Database, random: Random) -> None:
        self.database = database
        self.random = random
        self.responses = ResponseStore(database)
        self.conversations = ConversationStore(database)
        self.locks = [TurnLock(self.conversations, router) for router in ROUTERS]
        self.model = Model()
        self.held: list[Node] = []
        self.forgotten: set[str] = set()  # ids that there once were
        self.count = 0
        self.ticks = 0

    def tick(self) -> int:
        """Counts what happens in this process."""
        self.ticks += 1
        return self.ticks

    # operations on responses

    async def respond(self, owner: str) -> None:
        node = await self.continued(owner)
        if node is not None:
            await self.add_response(node)

    async def begin(self, owner: str) -> None:
        node = await self.continued(owner)
        if node is not None:
            await self.add_response(
                replace(node, output=[], encrypted_reasoning={}, status="in_progress")
            )

    async def finish(self, owner: str) -> None:
        all_nodes = self.model.responses.values()
        running = [n for n in all_nodes if n.status == "in_progress" and n.visible]
        if running:
            node = self.random.choice(running)
            made = self.node(node.owner, None)
            end = replace(
                node,
                status="completed",
                output=made.output,
                encrypted_reasoning=made.encrypted_reasoning,
            )
            assert await self.database.write(*self.responses.finished(end.row()))
            self.model.responses[node.id] = end

    async def hold(self, owner: str) -> None:
        """A response that is being made: it is written by ``commit``, after other steps."""
        node = await self.continued(owner)
        if node is not None:
            self.held.append(node)

    async def commit(self, owner: str) -> None:
        if self.held:
            await self.add_response(self.held.pop(self.random.randrange(len(self.held))))

    async def delete(self, owner: str) -> None:
        node = self.picked()
        if node is not None:
            allowed = node.visible and node.owner == owner
            assert await self.responses.delete(owner, node.id) is allowed
            node.deleted = node.deleted or allowed

    async def purge(self, owner: str) -> None:
        """Retention. What is being made could lose what it continues, so it is written before."""
        while self.held:
            await self.commit(owner)
        before = self.random.randint(0, self.count)
        self.model.purge(before)
        await self.responses.purge(before, 3)

    # operations on conversations

    async def create(self, owner: str) -> None:
        ident, items = self.name("conv"), self.messages()
        await self.conversations.create(owner, ident, self.count / 8, {}, items)
        made = Conversation(ident, owner, self.count / 8, {}, items)
        self.model.conversations[ident] = made

    async def add(self, owner: str) -> None:
        target, allowed = self.conversation(owner)
        items = self.messages()
        assert await self.conversations.add_items(owner, target.id, items) is allowed
        target.items += items if allowed else []

    async def update(self, owner: str) -> None:
        target, allowed = self.conversation(owner)
        metadata = {"k": self.name("v")}
        updated = await self.conversations.update(owner, target.id, metadata)
        assert (updated is not None) is allowed
        target.metadata = metadata if allowed else target.metadata

    async def delete_conversation(self, owner: str) -> None:
        target, allowed = self.conversation(owner)
        assert await self.conversations.delete(owner, target.id) is allowed
        target.deleted = target.deleted or allowed

    async def delete_item(self, owner: str) -> None:
        target, allowed = self.conversation(owner)
        if target.items:
            item = self.random.choice(target.items)
            done = await self.conversations.delete_item(owner, target.id, item["id"])
            assert done is allowed
            if allowed:
                target.items.remove(item)

    async def together(self, owner: str) -> None:
        """Turns and other changes at the same time; then the order that they took is checked."""
        deployments = [self.conversation(owner)[0], self.conversation(owner)[0]]
        actions = [
            Action(self, kind, self.random.choice((owner, owner, "bob")), target)
            for kind in self.random.choices(ACTIONS, k=self.random.randint(2, 7))
            for target in self.random.choices(deployments)
        ]
        answers = await asyncio.gather(*(one.run() for one in actions), return_exceptions=True)
        assert [one for one in answers if isinstance(one, BaseException)] == []
        for target in {one.target.id: one.target for one in actions}.values():
            await settled(self, target, [one for one in actions if one.target is target])

    # parts of the operations

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count:04}"

    def messages(self) -> list[dict[str, Any]]:
        return [message(self.name("msg")) for _ in range(self.random.randint(0, 3))]

    def node(self, owner: str, parent: str | None, *, again: bool = True) -> Node:
        """A new response. Where ``again`` an older item may be sent with it, in other words."""
        given = [message(self.name("msg")), *self.messages()]
        output = [message(self.name("msg"), role="assistant"), reasoning(self.name("rs"))]
        older = self.picked() if again else None
        if older is not None and older.output and self.random.random() < 0.3:
            given.append(message(older.output[0]["id"], "again"))
        rs = output[1]["id"]
        encrypted_reasoning = {rs: f"blob {rs}"} if self.random.random() < 0.5 else {}
        return Node(
            self.name("resp"), owner, parent, self.count, given, output, encrypted_reasoning
        )

    async def continued(self, owner: str) -> Node | None:
        """A response to one that this owner can continue, or to none; None to another's."""
        parent = self.picked()
        if parent is None or self.random.random() < 0.15:
            return self.node(owner, None)
        chain = await self.responses.history(owner, parent.id)
        usable = parent.visible and parent.owner == owner
        assert (chain is not None) is usable
        if chain is None or chain.status == "in_progress":
            return None
        return self.node(owner, parent.id)

    async def add_response(self, node: Node) -> None:
        assert await self.database.write(*self.responses.added(node.row()))
        self.model.responses[node.id] = node

    def picked(self) -> Node | None:
        """One of the responses, rather a new one."""
        nodes = list(self.model.responses.values())
        return self.random.choice(nodes[-8:]) if nodes else None

    def conversation(self, owner: str) -> tuple[Conversation, bool]:
        """One of the conversations, and whether this owner can use it."""
        target = self.random.choice([*self.model.conversations.values()])
        return target, target.owner == owner and not target.deleted


class Action:
    """One of the things that happen at the same time in a conversation."""

    def __init__(self, world: World, kind: str, owner: str, target: Conversation) -> None:
        self.world = world
        self.kind = kind
        self.owner = owner
        self.target = target
        self.lock = world.random.choice(world.locks)
        self.patience = world.random.random() * 0.005
        self.node = world.node(owner, None, again=False)
        self.items = [*self.node.given, *self.node.output]
        self.acquired = 0
        self.history: list[str] | None = None
        self.done = False

    async def run(self) -> None:
        conversations = self.world.conversations
        if self.kind == "add":
            self.done = await conversations.add_items(self.owner, self.target.id, self.items)
        elif self.kind == "drop":
            self.done = await conversations.delete(self.owner, self.target.id)
        elif self.kind == "cancel":
            task = asyncio.ensure_future(self.turn())
            await asyncio.wait([task], timeout=self.patience)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        else:
            await self.turn()

    async def turn(self) -> None:
        world = self.world
        turn = await self.lock.acquire(self.owner, self.target.id, SECONDS)
        if turn is None:
            return
        self.acquired = world.tick()
        try:
            found = await world.conversations.history(self.owner, self.target.id)
            self.history = None if found is None else ids_of(found)
            if self.kind != "abandon":
                self.done = await world.database.write(
                    *world.responses.added(self.node.row()),
                    *turn.steps(self.items, self.node.encrypted_reasoning),
                )
                assert self.done
        finally:
            turn.release()


async def settled(world: World, target: Conversation, actions: Sequence[Action]) -> None:
    """Check what came of ``actions`` in this conversation, and let the model know."""
    await alive(world.database, *ROUTERS)  # behind it, everything submitted before is written
    assert await world.database.read(_HELD) == []
    for action in actions:
        stored = await world.responses.get(action.owner, action.node.id)
        if stored is not None:
            action.done = True
            world.model.responses[action.node.id] = action.node
        assert not action.done or (action.owner == target.owner and not target.deleted)
        if action.kind == "commit":
            assert action.done is bool(action.acquired)
    if any(action.done for action in actions if action.kind == "drop"):
        target.deleted = True
    added = [action for action in actions if action.done and action.kind != "drop"]
    if not target.deleted:
        added = await in_order(world, target, actions, added)
    for action in added:
        target.items = [*target.items, *action.items]
        if action.kind != "add":
            target.encrypted_reasoning.update(action.node.encrypted_reasoning)


async def in_order(
    world: World, target: Conversation, actions: Sequence[Action], added: Sequence[Action]
) -> list[Action]:
    """``added`` in the order of their items, none of them mixed with another."""
    found = await world.conversations.items(target.owner, target.id, Page(10_000, descending=False))
    assert found is not None
    names = ids_of(found[0])
    old = ids_of(target.items)
    assert names[: len(old)] == old
    starts: dict[int, Action] = {}
    place = len(old)
    while place < len(names):
        [action] = [one for one in added if one.items[0]["id"] == names[place]]
        assert names[place : place + len(action.items)] == ids_of(action.items)
        starts[place] = action
        place += len(action.items)
    order = list(starts.values())
    assert len(order) == len(added)
    turns = [action for action in order if action.kind != "add"]
    assert turns == sorted(turns, key=lambda action: action.acquired)
    for action in actions:
        if action.history is not None:
            assert action.history == names[: len(action.history)]
    for place, action in starts.items():
        if action.history is not None:
            between = [one for at, one in starts.items() if len(action.history) <= at < place]
            assert all(one.kind == "add" for one in between)
    return order
