"""Fits the weights of ``cache.guard.weighing`` to the project's own pairs.

    python -m tests.cache.quality.fit

What is fitted to are the pairs of questions of ``pairs.json`` that the guard has nothing but
doubts about: those the file lists, and every other two of its questions that are near, which count
half as a trap, for nobody has looked at them. ``unseen.json`` is left for the test. Prints the
weights as they stand in the module, and how a fit to most of the pairs does on the others.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np

from cache.embedders.installed import default_directory
from cache.embedders.minilm import MiniLm
from cache.guard import THRESHOLD, gate, profile
from cache.guard.align import align, leftovers
from cache.guard.facts import facts
from cache.guard.order import order
from cache.guard.permuted import permuted
from cache.guard.weighing import SIGNS, doubtful, signs

_PAIRS: Final = Path(__file__).with_name("pairs.json")
_FOLDS: Final = 8
_RIDGE: Final = 2.0
_LISTED, _UNLISTED = 1.0, 0.5


@dataclass(frozen=True, slots=True)
class Case:
    """Two questions between which there are only doubts."""

    signs: tuple[float, ...]
    same: bool
    weight: float


class Sameness:
    """Which questions ask the same, by the pairs that do."""

    def __init__(self, pairs: Sequence[dict[str, str]]) -> None:
        self._leader: dict[str, str] = {}
        for pair in pairs:
            self._leader[self.leader(pair["a"])] = self.leader(pair["b"])

    def leader(self, text: str) -> str:
        """One question of all that ask the same."""
        while (above := self._leader.get(text, text)) != text:
            text = above
        return text


def cases(pairs: dict[str, list[dict[str, str]]], vectors: dict[str, Any]) -> Iterator[Case]:
    """Of all pairs of questions, those that are near and in doubt."""
    same = Sameness(pairs["should_hit"])
    listed = {frozenset((p["a"], p["b"])) for side in pairs.values() for p in side}
    texts = sorted(vectors)
    near = np.stack([vectors[text] for text in texts])
    near = near @ near.T
    for i, j in combinations(range(len(texts)), 2):
        if near[i, j] < THRESHOLD:
            continue
        one, other = texts[i], texts[j]
        found = doubted(one, other, float(near[i, j]))
        if found is not None:
            alike = same.leader(one) == same.leader(other)
            known = alike or frozenset((one, other)) in listed
            yield Case(found, alike, _LISTED if known else _UNLISTED)


def doubted(one: str, other: str, similarity: float) -> tuple[float, ...] | None:
    """The signs of two texts, None where the guard has no doubt, or is certain."""
    a, b = sorted((profile(one), profile(other)), key=lambda p: p.text)
    pairs = align(a, b)
    doubts = [veto for veto in (facts(a, b), leftovers(a, b, pairs)) if veto is not None]
    if not doubts or not all(map(doubtful, doubts)):
        return None
    if order(a, b, pairs) or permuted(a.text, b.text):
        return None
    return signs(a, b, pairs, similarity, doubts)


def fit(found: Any, same: Any, weights: Any) -> Any:
    """Weights of the signs and a bias, by Newton's method on standardised columns."""
    mean, spread = found.mean(0), found.std(0) + 1e-9
    columns = np.c_[(found - mean) / spread, np.ones(len(found))]
    ridge = _RIDGE * np.r_[np.ones(len(mean)), 0.0]
    beta = np.zeros(columns.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-columns @ beta))
        slope = columns.T @ (weights * (chance - same)) + ridge * beta
        curve = (columns.T * (weights * chance * (1 - chance))) @ columns + np.diag(ridge + 1e-6)
        beta -= np.linalg.solve(curve, slope)
    plain = beta[:-1] / spread
    return np.r_[plain, beta[-1] - plain @ mean]


async def _embedded(texts: Sequence[str]) -> dict[str, Any]:
    embedder = MiniLm(default_directory(os.environ))
    await embedder.start()
    try:
        fitting = [t for t in texts if not gate(t) and not embedder.refuses(t)]
        return {text: (await embedder.embed([text]))[0] for text in fitting}
    finally:
        await embedder.close()


def main() -> None:
    """Fit, and print."""
    pairs = json.loads(_PAIRS.read_text())
    texts = sorted({text for side in pairs.values() for p in side for text in (p["a"], p["b"])})
    known = list(cases(pairs, asyncio.run(_embedded(texts))))
    found = np.array([case.signs for case in known])
    same = np.array([float(case.same) for case in known])
    weights = np.array([case.weight for case in known])
    fold = np.random.default_rng(0).integers(0, _FOLDS, len(known))
    score = np.empty(len(known))
    for k in range(_FOLDS):
        beta = fit(found[fold != k], same[fold != k], weights[fold != k])
        score[fold == k] = found[fold == k] @ beta[:-1] + beta[-1]
    beta = fit(found, same, weights)
    print(", ".join(f"{value:.3f}" for value in beta[:-1]), "bias", f"{beta[-1]:.3f}")
    print(dict(zip(SIGNS, (beta[:-1] * found.std(0)).round(2).tolist(), strict=True)))
    listed = weights == _LISTED
    for least in (-0.5, 0.0, 0.5, 1.0):
        passed = score > least
        print(
            f"{least:5.2f}: {passed[same == 1].mean():.0%} of {same.sum():.0f} that ask the same, "
            f"{passed[listed & (same == 0)].sum()} of {(listed & (same == 0)).sum()} traps, "
            f"{passed[~listed].sum()} of {(~listed).sum()} others"
        )


if __name__ == "__main__":
    main()
