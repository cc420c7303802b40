"""How many paraphrases are found and how many traps get through, with the real embedder."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="the extra `semantic` is not installed")

from cache.embedders.minilm import MiniLm
from cache.guard import THRESHOLD, gate, profile, veto
from tests.support.minilm import minilm_directory

__all__ = ["minilm_directory"]

OWN = Path(__file__).with_name("quality") / "pairs.json"
UNSEEN = Path(__file__).with_name("quality") / "unseen.json"
PROBES = Path(__file__).parents[3] / "shared" / "probes" / "pairs.json"

Pair = dict[str, str]


def _found(pairs: list[Pair], directory: Path) -> list[Pair]:
    """The pairs of which one text is answered with what is stored for the other."""
    return asyncio.run(_judged(pairs, directory))


async def _judged(pairs: list[Pair], directory: Path) -> list[Pair]:
    embedder = MiniLm(directory)
    await embedder.start()
    try:
        return [pair for pair in pairs if await _answers(embedder, pair["a"], pair["b"])]
    finally:
        await embedder.close()


async def _answers(embedder: MiniLm, asked: str, stored: str) -> bool:
    if any(gate(text) or embedder.refuses(text) for text in (asked, stored)):
        return False
    first, second = await embedder.embed([asked, stored])
    similarity = float(first @ second)
    return similarity >= THRESHOLD and veto(profile(asked), profile(stored), similarity) is None


def test_own_pairs(minilm_directory: Path) -> None:
    pairs = json.loads(OWN.read_text())
    hits = _found(pairs["should_hit"], minilm_directory)
    assert len(hits) >= 0.8 * len(pairs["should_hit"])
    assert len(_found(pairs["should_miss"], minilm_directory)) <= 0.03 * len(pairs["should_miss"])
    assert len(Counter(pair["kind"] for pair in pairs["should_miss"])) >= 8


def test_pairs_that_no_rule_was_made_for(minilm_directory: Path) -> None:
    """Harder than the others, and not to be tuned on: they tell what to expect."""
    pairs = json.loads(UNSEEN.read_text())
    hits = _found(pairs["should_hit"], minilm_directory)
    assert len(hits) >= 0.55 * len(pairs["should_hit"])
    assert len(_found(pairs["should_miss"], minilm_directory)) <= 0.02 * len(pairs["should_miss"])


def test_the_probes_of_the_design(minilm_directory: Path) -> None:
    if not PROBES.exists():
        pytest.skip(f"{PROBES} is not there")
    pairs = json.loads(PROBES.read_text())
    hits = _found(pairs["should_hit"], minilm_directory)
    assert len(hits) >= 0.8 * len(pairs["should_hit"])
    assert len(_found(pairs["should_miss"], minilm_directory)) <= 1
