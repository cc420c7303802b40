"""The index against the plainest one there can be, and while everything changes at once."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cache.entry import CacheEntry, InvalidationRule
from cache.offload import Offload
from cache.store import Change
from tests.support.vectors import EMBEDDER, NEVER, Clock, entry, near, unit, units

pytest.importorskip("numpy", reason="the semantic tier needs numpy")

import numpy as np

from cache.index import NearEntry, VectorIndex

if TYPE_CHECKING:
    from tests.support.vectors import Vector

NAMES = st.sampled_from(["n1", "n2", "n3"])
KEYS = st.integers(0, 40).map("k{}".format)
MODELS = st.sampled_from(["m1", "m2"])
TAGS = st.lists(st.sampled_from(["t1", "t2"]), unique=True, max_size=2).map(tuple)
VECTORS = st.tuples(*[st.integers(-3, 3)] * 3).filter(any).map(lambda xs: unit(*xs))
RULES = st.one_of(
    st.just(InvalidationRule("all")),
    st.builds(InvalidationRule, st.just("namespace"), NAMES),
    st.builds(InvalidationRule, st.just("entry"), KEYS),
    st.builds(InvalidationRule, st.just("model"), MODELS),
    st.builds(InvalidationRule, st.just("tag"), st.sampled_from(["t1", "t2"])),
)


@dataclass
class Plain:
    """A dict of entries, all of which are looked at."""

    entries: dict[str, CacheEntry] = field(default_factory=dict)

    def near(self, name: str, vector: Vector, threshold: float, now: float) -> dict[str, float]:
        live = [e for e in self.entries.values() if e.namespace == name and e.expires > now]
        near = [(e, float(np.frombuffer(e.vector, "<f4") @ vector)) for e in live]
        demands = [float(e.tags[0].partition(":")[2]) for e, similarity in near
                   if e.kind == "mistake" and similarity >= threshold]  # fmt: skip
        threshold = max([threshold, *demands])
        return {e.key: s for e, s in near if e.kind == "answer" and s >= threshold}


class Model(RuleBasedStateMachine):
    """Any changes and searches in any order: both say the same."""

    @initialize(bound=st.sampled_from([1 << 30, 12_000, 25_000]))
    def begin(self, bound: int) -> None:
        self.offload, self.clock, self.plain = Offload(1), Clock(), Plain()
        self.bound = bound
        self.index = VectorIndex(
            max_bytes=bound, embedder=EMBEDDER, offload=self.offload, clock=self.clock, big=10
        )

    def teardown(self) -> None:
        self.offload.close()

    @rule(
        key=KEYS, name=NAMES, vector=VECTORS, model=MODELS, tags=TAGS,
        life=st.sampled_from([5, 50, NEVER]), text=st.text(max_size=30),
        demand=st.sampled_from([None, None, None, "0.9", "0.99"]),
    )  # fmt: skip
    def add(
        self, key: str, name: str, vector: Vector, model: str, tags: tuple[str, ...],
        life: float, text: str, demand: str | None,
    ) -> None:  # fmt: skip
        new = entry(
            key, vector, name, model=model, text=text, created=self.clock.now,
            expires=self.clock.now + life, kind="mistake" if demand else "answer",
            tags=(f"requires:{demand}",) if demand else tags,
        )  # fmt: skip
        self.index.apply([Change(added=new)])
        self.plain.entries[key] = new

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        self.index.apply([Change(removed=key)])
        self.plain.entries.pop(key, None)

    @rule(what=RULES)
    def invalidate(self, what: InvalidationRule) -> None:
        self.index.apply([Change(invalidated=what)])
        entries = self.plain.entries
        self.plain.entries = {k: e for k, e in entries.items() if what not in e.rules()}

    @rule(seconds=st.integers(1, 20))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule(name=NAMES, vector=VECTORS, threshold=st.sampled_from([0.5, 0.805, 0.95]))
    def search(self, name: str, vector: Vector, threshold: float) -> None:
        searching = self.index.search(name, vector, threshold=threshold, limit=50)
        found = asyncio.run(searching)
        expected = self.plain.near(name, vector, threshold, self.clock.now)
        assert {c.key: c.similarity for c in found} == pytest.approx(expected, abs=1e-5)
        assert [c.similarity for c in found] == sorted((c.similarity for c in found), reverse=True)
        for candidate in found:
            known = self.plain.entries[candidate.key]
            assert candidate.text == known.text
            assert (candidate.created, candidate.expires) == (known.created, known.expires)

    @invariant()
    def it_is_within_its_bound(self) -> None:
        if not hasattr(self, "index"):
            return
        stats = self.index.stats()
        assert stats.bytes <= self.bound
        rows = {key: self.index.row(key) for key in list(self.plain.entries)}
        known = [row for row in rows.values() if row is not None]
        assert stats.entries == sum(not row.mistake for row in known)
        assert stats.mistakes == sum(row.mistake for row in known)
        assert stats.namespaces == len({row.namespace for row in known if not row.mistake})
        for key, row in rows.items():
            if row is None:
                gone = self.plain.entries.pop(key)
                assert stats.evicted or gone.expires <= self.clock.now


Model.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestModel = Model.TestCase


async def test_never_a_wrong_text_while_rows_come_and_go() -> None:
    vectors = units(6000, 384, 1)
    offload = Offload(2)
    index = VectorIndex(max_bytes=1 << 30, embedder=EMBEDDER, offload=offload)
    index.apply([Change(added=entry(f"k{n}", vectors[n])) for n in range(5000)])
    dice = random.Random(1)

    async def change() -> None:
        for _ in range(300):
            batch = []
            for _ in range(20):
                n = dice.randrange(50, 6000)  # the first 50 stay, but move
                kept = Change(added=entry(f"k{n}", vectors[n]))
                batch.append(kept if dice.random() < 0.5 else Change(removed=f"k{n}"))
            index.apply(batch)
            await asyncio.sleep(0)

    async def ask(seed: int) -> int:
        missed = 0
        for n in range(50):
            vector = near(vectors[n], seed + n)
            found = await index.search("n", vector, threshold=0.8)
            check(found, vectors, vector)
            missed += f"k{n}" not in [candidate.key for candidate in found]
        return missed

    try:
        async with asyncio.timeout(60):
            changing = asyncio.create_task(change())
            missed = await asyncio.gather(*(ask(1000 * seed) for seed in range(4)))
            await changing
    finally:
        offload.close()
    assert missed == [0, 0, 0, 0]


def check(found: list[NearEntry], vectors: Vector, asked: Vector) -> None:
    """Every candidate's key, text and similarity belong together."""
    for candidate in found:
        assert candidate.text == f"text of {candidate.key}"
        similarity = float(vectors[int(candidate.key[1:])] @ asked)
        assert candidate.similarity == pytest.approx(similarity, abs=1e-5)
