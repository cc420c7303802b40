"""Prompts and their versions, on both databases."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from router.dialects.paging import Page
from router.errors import Conflict, InvalidRequest
from router.state.database import Database
from router.state.prompts import PromptStore

HOSTILE = ["", "\0", "a\0", "\ud800", "x" * 100_000, "line\nbreak"]


@pytest.fixture
def prompts(database: Database) -> PromptStore:
    return PromptStore(database)


async def test_a_prompt_is_found_by_id_and_by_name(prompts: PromptStore) -> None:
    made = await prompts.create("ann", "pmpt_1", "Grüße 😀", 7.5, b'{"a":1}')
    assert (made.created_at, made.latest, made.version, made.body) == (7, 1, 1, b'{"a":1}')
    assert await prompts.get("ann", "pmpt_1") == made
    assert await prompts.get("ann", "Grüße 😀") == made
    assert await prompts.get("ann", "pmpt_1", 1) == made
    assert await prompts.get("bob", "pmpt_1") is None
    for version in (0, 2, -1, 2**31, 2**70):
        assert await prompts.get("ann", "pmpt_1", version) is None
    for key in HOSTILE:
        assert await prompts.get("ann", key) is None


async def test_an_id_comes_before_a_name(prompts: PromptStore) -> None:
    await prompts.create("ann", "pmpt_1", "pmpt_2", 1.0, b"{}")
    await prompts.create("ann", "pmpt_2", "pmpt_1", 2.0, b"{}")
    for ident in ("pmpt_1", "pmpt_2"):
        found = await prompts.get("ann", ident)
        assert found is not None
        assert found.id == ident


async def test_names_are_unique_per_owner(prompts: PromptStore) -> None:
    await prompts.create("ann", "pmpt_1", "greeting", 1.0, b"{}")
    with pytest.raises(Conflict) as caught:
        await prompts.create("ann", "pmpt_2", "greeting", 2.0, b"{}")
    assert caught.value.param == "name"
    await prompts.create("bob", "pmpt_3", "greeting", 2.0, b"{}")
    assert await prompts.get("ann", "pmpt_2") is None
    for name in HOSTILE:
        with pytest.raises(InvalidRequest):
            await prompts.create("ann", "pmpt_9", name, 3.0, b"{}")


async def test_of_those_who_take_a_name_at_once_one_gets_it(prompts: PromptStore) -> None:
    answers = await asyncio.gather(
        *(prompts.create("ann", f"pmpt_{i}", "greeting", 1.0, b"{}") for i in range(8)),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, Conflict) for answer in answers) == 7


async def test_updates_make_versions(prompts: PromptStore) -> None:
    await prompts.create("ann", "pmpt_1", "greeting", 1.0, b"1")
    updated = await prompts.update("ann", "greeting", 9.9, lambda body: ("hello", body + b"2"))
    assert updated is not None
    assert (updated.latest, updated.version, updated.version_created_at) == (2, 2, 9)
    assert (updated.name, updated.created_at, updated.body) == ("hello", 1, b"12")
    assert await prompts.get("ann", "hello") == updated
    assert await prompts.get("ann", "greeting") is None
    first = await prompts.get("ann", "pmpt_1", 1)
    assert first is not None
    assert (first.version, first.latest, first.body) == (1, 2, b"1")
    assert await prompts.update("bob", "pmpt_1", 9.9, lambda body: ("hello", body)) is None


async def test_a_name_that_is_taken_is_not_updated_to(prompts: PromptStore) -> None:
    await prompts.create("ann", "pmpt_1", "one", 1.0, b"1")
    await prompts.create("ann", "pmpt_2", "two", 1.0, b"1")
    with pytest.raises(Conflict) as caught:
        await prompts.update("ann", "pmpt_1", 2.0, lambda body: ("two", body))
    assert caught.value.code == "name_taken"
    with pytest.raises(InvalidRequest):
        await prompts.update("ann", "pmpt_1", 2.0, lambda body: ("\0", body))
    found = await prompts.get("ann", "one")
    assert found is not None
    assert found.latest == 1


async def test_updates_at_once_all_count(prompts: PromptStore) -> None:
    await prompts.create("ann", "pmpt_1", "greeting", 1.0, b"[]")

    async def add(number: int) -> None:
        def change(body: bytes) -> tuple[str, bytes]:
            return "greeting", orjson.dumps([*orjson.loads(body), number])

        assert await prompts.update("ann", "pmpt_1", 2.0, change) is not None

    await asyncio.gather(*(add(number) for number in range(8)))
    found = await prompts.get("ann", "pmpt_1")
    assert found is not None
    assert found.latest == 9
    assert sorted(orjson.loads(found.body)) == list(range(8))


async def test_versions_are_listed_in_pages(prompts: PromptStore) -> None:
    await prompts.create("ann", "pmpt_1", "greeting", 1.0, b"1")
    for _ in range(4):
        await prompts.update("ann", "pmpt_1", 2.0, lambda body: ("greeting", body + b"1"))

    async def numbers(page: Page) -> tuple[list[int], bool]:
        found = await prompts.versions("ann", "greeting", page)
        assert found is not None
        return [prompt.version for prompt in found[0]], found[1]

    assert await numbers(Page(3)) == ([5, 4, 3], True)
    assert await numbers(Page(3, after="3")) == ([2, 1], False)
    assert await numbers(Page(3, descending=False)) == ([1, 2, 3], True)
    assert await numbers(Page(3, descending=False, after="4")) == ([5], False)
    assert await prompts.versions("bob", "pmpt_1", Page()) is None
    for after in ("x", "-1", "²", "9" * 30, "1.5", "4000000000"):
        with pytest.raises(InvalidRequest) as caught:
            await numbers(Page(after=after))
        assert caught.value.param == "after"


async def test_prompts_are_listed_newest_first(prompts: PromptStore) -> None:
    for i in range(5):
        await prompts.create("ann", f"pmpt_{i}", f"name {i}", 100.0 + i / 10, b"{}")
    await prompts.create("bob", "pmpt_b", "name", 101.0, b"{}")

    async def idents(page: Page) -> tuple[list[str], bool]:
        found, more = await prompts.page("ann", page)
        return [prompt.id for prompt in found], more

    assert await idents(Page(3)) == (["pmpt_4", "pmpt_3", "pmpt_2"], True)
    assert await idents(Page(3, after="pmpt_2")) == (["pmpt_1", "pmpt_0"], False)
    assert await idents(Page(5, descending=False, after="pmpt_2")) == (["pmpt_3", "pmpt_4"], False)
    for after in ("pmpt_b", "nothing", "\0"):
        with pytest.raises(InvalidRequest):
            await idents(Page(after=after))


async def test_a_deleted_prompt_is_gone_with_its_versions(prompts: PromptStore) -> None:
    await prompts.create("ann", "pmpt_1", "greeting", 1.0, b"1")
    await prompts.create("ann", "pmpt_2", "other", 1.0, b"1")
    assert not await prompts.delete("bob", "pmpt_1")
    assert await prompts.delete("ann", "greeting")
    assert not await prompts.delete("ann", "pmpt_1")
    assert await prompts.get("ann", "pmpt_1") is None
    assert await prompts.get("ann", "pmpt_1", 1) is None
    assert await prompts.get("ann", "pmpt_2") is not None
    await prompts.create("ann", "pmpt_3", "greeting", 1.0, b"1")
