"""The simulated models of embeddings: the same text always gets the same vector.

Every word has a direction of its own, and a text is the sum of its words: texts that share words
are near each other.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

__all__ = ["DIMENSIONS", "as_base64", "embed", "is_embedder", "similarity"]

DIMENSIONS: Final = 64
_WORD: Final = re.compile(r"\w+|[^\w\s]")


def is_embedder(model: str) -> bool:
    """Whether a model is for embeddings only: its name says so."""
    return "embed" in model


def embed(text: str | Sequence[int], dimensions: int = DIMENSIONS) -> list[float]:
    """The vector of a text, or of tokens, cut to its first dimensions; its length is 1."""
    words = _WORD.findall(text.lower()) if isinstance(text, str) else [f"#{n}" for n in text]
    total = [0.0] * DIMENSIONS
    for word in words or [""]:
        digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=DIMENSIONS).digest()
        for place, byte in enumerate(digest):
            total[place] += byte - 127.5
    cut = total[:dimensions]
    length = math.sqrt(sum(number * number for number in cut)) or 1.0
    return [_single(number / length) for number in cut]


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of two vectors of length 1."""
    return sum(a * b for a, b in zip(one, other, strict=True))


def as_base64(vector: Sequence[float]) -> str:
    """32 bits for each number, the lowest byte first."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _single(number: float) -> float:
    """What is left of a number in 32 bits."""
    value: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return value
