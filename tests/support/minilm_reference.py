"""all-MiniLM-L6-v2 in float32, as its authors define it: what the int8 graph is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

__all__ = ["reference_vectors"]


def reference_vectors(weights: Mapping[str, Floats], texts: Sequence[Sequence[int]]) -> Floats:
    """A row of length 1 for each text, given as its word pieces, [CLS] and [SEP] among them."""
    names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    word, place, kind = (weights[f"embeddings.{name}.weight"] for name in names)
    states = np.concatenate([word[list(ids)] + place[: len(ids)] for ids in texts]) + kind[0]
    states = _normalised(weights, "embeddings.LayerNorm", states)
    ends = np.cumsum([len(ids) for ids in texts])[:-1]
    for layer in range(6):
        states = _layer(weights, f"encoder.layer.{layer}.", states, ends)
    means = np.array([rows.mean(axis=0) for rows in np.split(states, ends)])
    return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True), dtype=np.float32)


def _layer(
    weights: Mapping[str, Floats], prefix: str, states: Floats, ends: NDArray[np.int64]
) -> Floats:
    projected = [
        np.split(_dense(weights, f"{prefix}attention.self.{name}", states), ends)
        for name in ("query", "key", "value")
    ]
    attended = np.concatenate([_attended(*heads) for heads in zip(*projected, strict=True)])
    mixed = states + _dense(weights, prefix + "attention.output.dense", attended)
    states = _normalised(weights, prefix + "attention.output.LayerNorm", mixed)
    active = _gelu(_dense(weights, prefix + "intermediate.dense", states))
    narrow = states + _dense(weights, prefix + "output.dense", active)
    return _normalised(weights, prefix + "output.LayerNorm", narrow)


def _attended(*projected: Floats) -> Floats:
    """What the rows of one text see of one another, through 12 heads."""
    query, key, value = (np.swapaxes(rows.reshape(-1, 12, 32), 0, 1) for rows in projected)
    scores = query @ np.swapaxes(key, 1, 2) / np.sqrt(np.float32(32))
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    seen = (scores / scores.sum(axis=-1, keepdims=True)) @ value
    return np.asarray(np.swapaxes(seen, 0, 1).reshape(-1, 384))


def _dense(weights: Mapping[str, Floats], name: str, states: Floats) -> Floats:
    product = states @ weights[name + ".weight"].T + weights[name + ".bias"]
    return np.asarray(product, dtype=np.float32)


def _normalised(weights: Mapping[str, Floats], name: str, states: Floats) -> Floats:
    centred = states - states.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(1e-12))
    scaled = centred / deviation * weights[name + ".weight"] + weights[name + ".bias"]
    return np.asarray(scaled, dtype=np.float32)


def _gelu(x: Floats) -> Floats:
    """By the error function as Abramowitz and Stegun's 7.1.26 has it, off by 1.5e-7 at most."""
    scaled = x / np.sqrt(np.float32(2))
    t = 1 / (1 + np.float32(0.3275911) * np.abs(scaled))
    series = np.zeros_like(x)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = np.asarray((series + np.float32(factor)) * t, dtype=np.float32)
    erf = np.sign(x) * (1 - series * np.exp(-scaled * scaled))
    return np.asarray(x * (1 + erf) / 2, dtype=np.float32)
