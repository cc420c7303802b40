"""What a connection keeps of responses that are not stored, and its bounds."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import orjson

from router.sessions.chains import ChainMemory, Chains
from router.state.history import MAX_TURNS, ResponseHistory
from router.state.responses import ResponseStore, StoredResponse
from tests.support.seed import seed


class Nothing(ResponseStore):
    """A store with nothing in it but what it is made with."""

    def __init__(self, **kept: list[dict[str, Any]]) -> None:
        self._kept_here = kept

    async def history(self, owner: str, ident: str) -> ResponseHistory | None:
        """See ``ResponseStore.history``."""
        items = self._kept_here.get(ident)
        return ResponseHistory("completed", None, list(items)) if items is not None else None

    async def find_items(self, owner: str, ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """See ``ResponseStore.find_items``."""
        kept = [item for items in self._kept_here.values() for item in items]
        return {item["id"]: item for item in kept if item["id"] in ids}


def response(ident: str, parent: str | None = None, size: int = 10, **fields: Any) -> Any:
    """A response whose request said its id."""
    return StoredResponse.of(
        {"id": ident, "status": "completed", "created_at": 1, "output": fields.get("output", [])},
        owner=fields.get("owner", "ann"),
        request_items=[{"id": f"msg_{ident}", "text": "x" * size}],
        encrypted_reasoning=fields.get("hidden", {}),
        parent=parent,
        conversation=None,
        account="acme",
        background=False,
        resumable=False,
    )


async def ids(chains: Chains, ident: str, owner: str = "ann") -> list[str] | None:
    """The ids of a response's history; None where there is none."""
    found = await chains.history(owner, ident)
    return [item["id"] for item in found.items] if found is not None else None


async def test_a_chain_is_walked_to_its_beginning() -> None:
    chains = Chains(ChainMemory(), Nothing(stored=[{"id": "msg_stored"}]))
    chains.keep(response("a", "stored"), None)
    chains.keep(response("b", "a", output=[{"id": "fc_b", "type": "function_call"}]), "x")
    chains.keep(response("c", "a"), "y")
    assert await ids(chains, "b") == ["msg_stored", "msg_a", "msg_b", "fc_b"]
    assert await ids(chains, "c") == ["msg_stored", "msg_a", "msg_c"]
    assert await ids(chains, "stored") == ["msg_stored"]
    assert await ids(chains, "nobody") is None
    found = await chains.history("ann", "b")
    assert found is not None
    assert (found.status, found.account) == ("completed", "acme")


async def test_where_some_of_it_is_gone_there_is_none() -> None:
    chains = Chains(ChainMemory(), Nothing())
    chains.keep(response("a", "gone"), None)
    assert await ids(chains, "a") is None
    chains.keep(response("b"), None)
    chains.keep(response("c", "b"), None)
    chains.drop("b")
    assert await ids(chains, "c") is None


async def test_hidden_reasoning_is_put_back() -> None:
    output = [{"id": "rs_1", "type": "reasoning", "summary": []}]
    chains = Chains(ChainMemory(), Nothing())
    chains.keep(response("a", output=output, hidden={"rs_1": "sealed"}), None)
    found = await chains.history("ann", "a")
    assert found is not None
    assert found.items[1] == {**output[0], "encrypted_content": "sealed"}


async def test_items_are_found_by_their_ids() -> None:
    thought = {"id": "rs_1", "type": "reasoning", "summary": []}
    output = [thought, {"id": 'odd "1"\u00e9'}, {"id": 7}]
    stored = {"id": "msg_stored", "text": "msg_a"}
    chains = Chains(ChainMemory(), Nothing(stored=[stored]))
    chains.keep(response("a", output=output, hidden={"rs_1": "sealed"}), None)
    chains.keep(response("b", "a"), None)
    wanted = ["msg_a", "rs_1", 'odd "1"\u00e9', "msg_b", "msg_stored", "7", "nothing"]
    found = await chains.find_items("ann", wanted)
    assert found["rs_1"] == {**thought, "encrypted_content": "sealed"}
    assert found["msg_stored"] == stored
    assert sorted(found) == sorted(wanted[:5])
    assert await chains.find_items("bob", wanted) == {"msg_stored": stored}


async def test_it_is_its_owners() -> None:
    """A key may get another name while the connection lasts."""
    chains = Chains(ChainMemory(), Nothing())
    chains.keep(response("a"), None)
    assert await ids(chains, "a", "bob") is None
    assert await ids(chains, "a") == ["msg_a"]


async def test_what_failed_is_closed_to_its_own_stream_only() -> None:
    chains = Chains(ChainMemory(), Nothing())
    chains.keep(response("a"), "x")
    chains.keep(response("b", "a"), "y")
    chains.failed("a", "y")
    chains.failed("nobody", "y")
    assert "a" in chains
    chains.failed("a", "x")
    assert "a" not in chains
    assert await ids(chains, "a") is None
    assert await ids(chains, "b") == ["msg_a", "msg_b"]


async def test_a_connection_keeps_so_much() -> None:
    memory = ChainMemory()
    chains = Chains(memory, Nothing(), limit=1000)
    for number in range(20):
        chains.keep(response(f"r{number}", size=100), None)
        assert memory.size <= 1000
    assert "r0" not in chains
    assert await ids(chains, "r19") == ["msg_r19"]
    chains.keep(response("huge", size=2000), None)
    assert await ids(chains, "huge") is None
    assert (memory.size, len(memory)) == (0, 0)


async def test_what_is_used_stays() -> None:
    chains = Chains(ChainMemory(), Nothing(), limit=1000)
    chains.keep(response("used", size=100), None)
    for number in range(20):
        chains.keep(response(f"r{number}", size=100), None)
        assert await ids(chains, "used") == ["msg_used"]


async def test_all_connections_keep_so_much_together() -> None:
    memory = ChainMemory(limit=1000)
    one, other = Chains(memory, Nothing()), Chains(memory, Nothing())
    one.keep(response("a", size=600), None)
    other.keep(response("a", size=600), None)
    assert await ids(one, "a") is None
    assert await ids(other, "a") == ["msg_a"]
    other.close()
    assert (memory.size, len(memory)) == (0, 0)
    other.keep(response("late"), None)
    assert (memory.size, len(memory)) == (0, 0)


async def test_so_many_responses() -> None:
    memory = ChainMemory()
    chains = Chains(memory, Nothing())
    for number in range(MAX_TURNS + 5):
        chains.keep(response(str(number), size=1), None)
    assert len(memory) == MAX_TURNS


async def test_whatever_happens_the_sum_is_right() -> None:
    rng = random.Random(seed())
    memory = ChainMemory(limit=20_000)
    all_chains = [Chains(memory, Nothing(), limit=8_000) for _ in range(4)]
    for step in range(3000):
        chains = rng.choice(all_chains)
        ident = f"r{rng.randrange(40)}"
        act = rng.randrange(6)
        if act < 3:
            chains.keep(response(ident, f"r{step % 40}x", size=rng.randrange(3000)), "s")
        elif act == 3:
            chains.failed(ident, "s")
        elif act == 4:
            chains.drop(ident)
        else:
            await chains.history("ann", ident)
        kept = sum(
            len(orjson.dumps(orjson.loads(kept.stored.input))) + len(kept.stored.output)
            for one in all_chains
            for kept in one._kept.values()
        )
        assert kept == memory.size <= 20_000
        assert all(one._size <= 8_000 for one in all_chains)
