"""What ``state export`` hands out: all of one owner's, and nothing of anybody else's."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.state.conversations import ConversationStore
from router.state.database import Database
from router.state.maintenance.export import Exported, export
from router.state.prompts import PromptStore
from router.state.responses import ResponseStore
from router.state.usage import COLUMNS
from tests.support.damage import executed
from tests.support.state import database_url, opened, state_settings
from tests.support.stored import message, reasoning, stored
from tests.support.usage import recorded, row

__all__ = ["database_url"]

BLOB = "pm1.account.sealed"


async def fill(database: Database, owner: str, count: int) -> None:
    """``count`` responses, conversations of 0 to 2 * ``count`` items, prompts of many versions."""
    responses, conversations = ResponseStore(database), ConversationStore(database)
    prompts = PromptStore(database)
    for number in range(count):
        name = f"{owner}_{number:03}"
        thought = reasoning(f"rs_{name}")
        row = stored(
            f"resp_{name}",
            owner=owner,
            given=[message(f"in_{name}", "\u00e9\n\x00")],
            output=[thought, message(f"out_{name}", "yes", "assistant")],
            encrypted_reasoning={thought["id"]: BLOB},
        )
        await database.write(*responses.added(row))
        items = [message(f"item_{name}_{n}") for n in range(2 * number)]
        # Several of the same age: pages must neither skip nor repeat them.
        await conversations.create(owner, f"conv_{name}", number // 3, {"of": owner}, items)
        body = orjson.dumps({"name": f"prompt-{number}", "instructions": "v1"})
        await prompts.create(owner, f"pmpt_{name}", f"prompt-{number}", number // 3, body)

    async def change(text: str) -> None:
        def changed(body: bytes) -> tuple[str, bytes]:
            fields = orjson.loads(body)
            return fields["name"], orjson.dumps({**fields, "instructions": text})

        await prompts.update(owner, "prompt-0", 9.0, changed)

    for number in range(2, 20):
        await change(f"v{number}")


async def exported(url: str, owner: str, **more: Any) -> tuple[Exported, list[dict[str, Any]]]:
    pieces: list[bytes] = []
    options = {"reasoning": False, **more}
    result = await export(state_settings(url), owner, pieces.append, **options)
    text = b"".join(pieces)
    assert text == b"" or text.endswith(b"\n")
    return result, [orjson.loads(line) for line in text.splitlines()]


async def test_all_of_one_owner_and_of_nobody_else(database_url: str) -> None:
    async with opened(database_url) as database:
        await fill(database, "ann", 12)
        await fill(database, "bob", 2)
        responses, conversations = ResponseStore(database), ConversationStore(database)
        await responses.delete("ann", "resp_ann_003")
        await conversations.delete("ann", "conv_ann_004")
        await conversations.delete_item("ann", "conv_ann_005", "item_ann_005_1")
        await PromptStore(database).delete("ann", "prompt-6")
        result, lines = await exported(database_url, "ann")
        shown = await responses.get("ann", "resp_ann_007")
        assert shown is not None

    by_type: dict[str, dict[str, dict[str, Any]]] = {}
    for line in lines:
        by_type.setdefault(line.pop("type"), {})[line["id"]] = line
    numbers = range(12)
    assert by_type["response"].keys() == {f"resp_ann_{n:03}" for n in numbers if n != 3}
    assert by_type["conversation"].keys() == {f"conv_ann_{n:03}" for n in numbers if n != 4}
    assert by_type["prompt"].keys() == {f"pmpt_ann_{n:03}" for n in numbers if n != 6}
    assert len(lines) == 33
    assert (result.responses, result.conversations, result.prompts) == (11, 11, 11)
    assert result.damaged == []

    response = by_type["response"]["resp_ann_007"]
    assert response.pop("input_items") == [message("in_ann_007", "\u00e9\n\x00")]
    assert response == orjson.loads(shown.public())
    for number in (0, 5, 11):
        conversation = by_type["conversation"][f"conv_ann_{number:03}"]
        items = [f"item_ann_{number:03}_{n}" for n in range(2 * number)]
        if number == 5:
            items.remove("item_ann_005_1")
        assert [item["id"] for item in conversation["items"]] == items
        assert conversation["metadata"] == {"of": "ann"}
    versions = by_type["prompt"]["pmpt_ann_000"]["versions"]
    assert [v["instructions"] for v in versions] == [f"v{n}" for n in range(1, 20)]
    assert [v["version"] for v in versions] == [str(n) for n in range(1, 20)]
    assert b"bob" not in orjson.dumps(lines)


async def test_usage_of_a_key(database_url: str) -> None:
    async with opened(database_url) as database:
        rows = [row(f"att_{n:03}", at=1e9 + n // 3, tags=("b", "a")) for n in range(450)]
        await recorded(database, *rows, row(key="bob"))
    result, lines = await exported(database_url, "ann")
    assert result.usage == 450
    assert [line["id"] for line in lines] == [one.id for one in rows]
    assert lines[0] == {
        "type": "usage",
        **dict(zip(COLUMNS, rows[0].values(), strict=True)),
        "tags": ["a", "b"],
        "stream": True,
    }


async def test_hidden_reasoning_only_where_it_is_asked_for(database_url: str) -> None:
    async with opened(database_url) as database:
        await fill(database, "ann", 1)
        conversations = ConversationStore(database)
        turn = await conversations.begin_turn("ann", "conv_ann_000", "router_x")
        assert turn
        steps = conversations.end_turn_steps(
            "conv_ann_000", "router_x", turn, [reasoning("rs_turn")], {"rs_turn": BLOB}
        )
        assert await database.write(*steps)
    _, without = await exported(database_url, "ann")
    assert BLOB.encode() not in orjson.dumps(without)
    _, with_it = await exported(database_url, "ann", reasoning=True)
    response, conversation, _ = with_it
    assert response["output"][0]["encrypted_content"] == BLOB
    assert conversation["items"][-1]["encrypted_content"] == BLOB


@pytest.mark.parametrize("owner", ["nobody", "ann ", "ANN", "", "a'; --", "\u2603"])
async def test_an_owner_without_anything(database_url: str, owner: str) -> None:
    assert await exported(database_url, owner) == (Exported(), [])
    async with opened(database_url) as database:
        await fill(database, "ann", 1)
    assert await exported(database_url, owner) == (Exported(), [])


async def test_what_is_damaged_is_left_out_and_named(database_url: str) -> None:
    async with opened(database_url) as database:
        await fill(database, "ann", 4)
    await executed(
        database_url,
        "UPDATE responses SET output = CAST('[' AS {blob}) WHERE id = 'resp_ann_001'",
        "UPDATE conversations SET metadata = CAST('[' AS {blob}) WHERE id = 'conv_ann_001'",
        "UPDATE conversation_items SET data = CAST('[' AS {blob}) "
        "WHERE conversation = 'conv_ann_002' AND position = 0",
        "UPDATE prompt_versions SET body = CAST('[' AS {blob}) "
        "WHERE prompt = 'pmpt_ann_000' AND version = 2",
    )
    result, lines = await exported(database_url, "ann")
    assert result.damaged == [
        "resp_ann_001",
        "conv_ann_001",
        "conv_ann_002 item 0",
        "pmpt_ann_000 version 2",
    ]
    assert (result.responses, result.conversations, result.prompts) == (3, 3, 4)
    items = next(line["items"] for line in lines if line["id"] == "conv_ann_002")
    assert [item["id"] for item in items] == [f"item_ann_002_{n}" for n in (1, 2, 3)]
