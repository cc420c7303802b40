"""What the state should show, kept in plain objects: the model of ``tests/state/test_model.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from router.state.responses import StoredResponse
from tests.support.stored import stored

__all__ = ["Conversation", "Model", "Node", "revealed"]

Item = dict[str, Any]


@dataclass
class Node:
    """A response. ``parent`` is what it was made from, whatever became of that later.

    ``deleted`` is by its owner; ``exists`` ends with retention.
    """

    id: str
    owner: str
    parent: str | None
    created_at: int
    given: list[Item]
    output: list[Item]
    encrypted_reasoning: dict[str, str]
    status: str = "completed"
    deleted: bool = False
    exists: bool = True

    @property
    def visible(self) -> bool:
        """Whether its owner sees it."""
        return self.exists and not self.deleted

    def row(self) -> StoredResponse:
        """It as it is stored."""
        return stored(
            self.id,
            owner=self.owner,
            given=self.given,
            output=self.output,
            parent=self.parent,
            status=self.status,
            created_at=self.created_at,
            encrypted_reasoning=self.encrypted_reasoning,
        )

    def history(self) -> list[Item]:
        """Its items as the next turn gets them."""
        return [revealed(item, self.encrypted_reasoning) for item in (*self.given, *self.output)]


@dataclass
class Conversation:
    """A conversation and its items, with what is hidden of them."""

    id: str
    owner: str
    created_at: float
    metadata: dict[str, str]
    items: list[Item]
    encrypted_reasoning: dict[str, str] = field(default_factory=dict)
    deleted: bool = False


class Model:
    """Responses and conversations by id, in the order in which they were made."""

    def __init__(self) -> None:
        self.responses: dict[str, Node] = {}
        self.conversations: dict[str, Conversation] = {}

    def chain(self, ident: str) -> list[Item]:
        """The items of what led to this response, and its own."""
        nodes = [self.responses[ident], *self._ancestors(ident)]
        return [item for node in reversed(nodes) if not node.deleted for item in node.history()]

    def purge(self, before: int) -> int:
        """Forget what is older and finished, unless something is built on it."""
        removed = 0
        for node in sorted(self.responses.values(), key=lambda node: -node.created_at):
            finished = node.deleted or node.status != "in_progress"
            if node.exists and node.created_at < before and finished:
                node.exists = any(
                    node in self._ancestors(other.id)
                    for other in self.responses.values()
                    if other.exists
                )
                removed += not node.exists
        return removed

    def items(self, owner: str) -> dict[str, Item]:
        """Every item that this owner can refer to."""
        found: dict[str, Item] = {}
        all_nodes = sorted(self.responses.values(), key=lambda node: node.id)
        visible = [node for node in all_nodes if node.owner == owner and node.visible]
        for node in visible:
            for item in node.output:
                found.setdefault(item["id"], revealed(item, node.encrypted_reasoning))
        for node in visible:
            for item in node.given:
                found.setdefault(item["id"], revealed(item, node.encrypted_reasoning))
        for conversation in self.conversations.values():
            if conversation.owner == owner:
                for item in conversation.items:
                    found.setdefault(item["id"], revealed(item, conversation.encrypted_reasoning))
        return found

    def listed(self, owner: str) -> list[Conversation]:
        """The conversations that this owner sees, oldest first."""
        mine = [c for c in self.conversations.values() if c.owner == owner and not c.deleted]
        return sorted(mine, key=lambda conversation: conversation.created_at)

    def _ancestors(self, ident: str) -> Iterator[Node]:
        parent = self.responses[ident].parent
        while parent is not None:
            node = self.responses[parent]
            yield node
            parent = node.parent


def revealed(item: Item, encrypted_reasoning: dict[str, str]) -> Item:
    """The item with what was hidden of it."""
    blob = encrypted_reasoning.get(item["id"])
    return item if blob is None else {**item, "encrypted_content": blob}
