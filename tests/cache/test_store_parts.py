"""What the stores are made of: rules, heads, the feed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.entry import EVERYTHING, CacheEntry, InvalidationRule
from cache.store import Change
from cache.stores.changes import RESET, Feed, InvalidationRules
from cache.stores.codec import pack_head, pack_rule, unpack, unpack_rule
from cache.stores.memory import EntryTable
from tests.support.stores import an_entry, name

_RULES = st.one_of(
    st.just(EVERYTHING), st.integers(0, 30).map(lambda number: InvalidationRule("tag", str(number)))
)


@given(st.lists(_RULES, max_size=80))
def test_few_rules_are_kept_and_none_is_forgotten(invalidations: list[InvalidationRule]) -> None:
    rules, kept = InvalidationRules(most=10), dict[InvalidationRule, int]()
    for number, rule in enumerate(invalidations, 1):
        kept |= dict(rules.add(rule))
        assert rules.epoch == number
        assert len(rules) <= 11
    for number, rule in enumerate(invalidations):
        tags = (rule.value,) if rule.kind == "tag" else ()
        assert not rules.allow(an_entry(epoch=number, tags=tags))
    assert rules.allow(an_entry(epoch=len(invalidations)))
    restored = InvalidationRules()
    restored.restore((rule, epoch) for rule, epoch in kept.items() if epoch)
    for epoch in range(len(invalidations) + 1):
        for tag in map(str, range(31)):
            entry = an_entry(epoch=epoch, tags=(tag,))
            assert restored.allow(entry) == rules.allow(entry)


def test_recent_invalidations_stay_exact_where_old_ones_are_merged() -> None:
    rules = InvalidationRules(most=10)
    for number in range(12):
        rules.add(InvalidationRule("tag", str(number)))
    assert rules.allow(an_entry(epoch=8))
    assert not rules.allow(an_entry(epoch=8, tags=("10",)))
    assert not rules.allow(an_entry(epoch=1))


@given(st.binary(max_size=40), st.text(max_size=20), st.lists(st.text(max_size=5), max_size=3))
def test_a_head_and_a_body_are_the_entry(vector: bytes, text: str, tags: list[str]) -> None:
    try:
        text.encode()
        "".join(tags).encode()
    except UnicodeEncodeError:
        return
    entry = an_entry(text=text, tags=tuple(tags), vector=vector, model=text)
    assert unpack(pack_head(entry), entry.body) == entry
    held, *_ = EntryTable(1 << 20).put(entry, 1, 0.0, whole=False)
    assert held.rules() == entry.rules()
    for rule in entry.rules():
        assert unpack_rule(pack_rule(rule)) == rule


@pytest.mark.parametrize(
    "head",
    [b"", b"\n", b"null\n", b"[]\n", b"{}\n", b"[1]\n", pack_head(an_entry())[:20], b"\xff\n"],
)
def test_what_is_no_head_is_refused(head: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        unpack(head)


@pytest.mark.parametrize("text", ["", "tag", "what:x"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no rule"):
        unpack_rule(text)


@pytest.mark.parametrize("field", range(10))
def test_fields_of_other_types_are_refused(field: int) -> None:
    import orjson

    values: list[Any] = [None, 1, "x", [1], {}, 1.5]
    for value in values:
        fields: list[Any] = ["k", "n", "answer", "m", 1.0, 2.0, 3, ["t"], "text", "e"]
        if type(value) is type(fields[field]) and value != [1]:
            continue
        fields[field] = value
        with pytest.raises(ValueError, match="no entry"):
            unpack(orjson.dumps(fields) + b"\n")


def test_times_are_numbers() -> None:
    with pytest.raises(ValueError, match=r".*"):
        unpack(pack_head(an_entry(expires=math.inf)))


async def test_a_follower_that_is_too_slow_begins_anew() -> None:
    feed = Feed(most=10)
    there: list[CacheEntry] = []

    async def everything() -> AsyncIterator[Sequence[Change]]:
        yield [Change(added=entry) for entry in there]

    following = feed.follow(everything)
    assert await anext(following) == (RESET,)
    assert await anext(following) == ()
    for number in range(11):
        there.append(an_entry(str(number)))
        feed.tell(Change(added=there[-1]))
    assert await anext(following) == (RESET,)
    assert len(await anext(following)) == 11
    assert await anext(following) == ()
    waiting = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0)
    feed.tell(Change(removed="k"))
    assert await waiting == [Change(removed="k")]


@given(st.lists(st.tuples(st.sampled_from("alrf"), st.integers(0, 9)), max_size=60))
def test_the_least_recently_used_goes_first(operations: list[tuple[str, int]]) -> None:
    ledger, order = EntryTable(1 << 20), list[str]()
    for operation, number in operations:
        key = name(str(number))
        if operation == "a":
            ledger.put(an_entry(str(number)), number + 1, 0.0, whole=False)
            order = [*(other for other in order if other != key), key]
        elif operation == "r":
            assert (ledger.remove(key) is not None) == (key in order)
            order = [other for other in order if other != key]
        elif operation == "f":
            assert (ledger.find(key, 0.0) is not None) == (key in order)
            order = sorted(order, key=lambda other: other == key)
        else:
            evicted = [held.key for held in ledger.evict(1)]
            assert evicted == order[:1]
            order = order[1:]
        assert len(ledger) == len(order)
        assert all(key in ledger for key in order)
        assert {held.key for held in ledger.slice(0, ledger.slots)} == set(order)
        assert ledger.bytes == sum(held.size for held in ledger.slice(0, ledger.slots))
    assert [held.key for held in ledger.evict(1 << 20)] == order
    assert ledger.bytes == 0
