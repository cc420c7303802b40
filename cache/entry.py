"""What the cache keeps: one finished answer, and what it takes to find it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["EVERYTHING", "CacheEntry", "InvalidationRule", "RuleKind"]

RuleKind = Literal["all", "model", "namespace", "tag", "entry"]


@dataclass(frozen=True, slots=True)
class InvalidationRule:
    """What an invalidation is about: every entry with this model, namespace, tag or key.

    ``value`` is empty where ``kind`` is ``all``.
    """

    kind: RuleKind
    value: str = ""


EVERYTHING: Final = InvalidationRule("all")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One answer. Times are in Unix seconds.

    ``key`` is the hash of the whole canonical request in its scope, ``namespace`` the one of what
    the request has in common with those that differ in their last user text only, both in hex.
    ``kind`` is what sort of answer ``body`` holds (``answer``: a canonical answer as JSON;
    ``vectors``: embeddings).
    ``epoch`` is the store's epoch of before the answer was asked for: an invalidation since then
    is about it too. ``text`` is the last user text, and ``vector`` that text's embedding
    (little-endian float32, of length 1) by the embedder of this name; all three are empty where
    the entry can only be found exactly.
    """

    key: str
    namespace: str
    kind: str
    model: str
    created: float
    expires: float
    epoch: int
    body: bytes
    tags: tuple[str, ...] = ()
    text: str = ""
    embedder: str = ""
    vector: bytes = b""

    def rules(self) -> tuple[InvalidationRule, ...]:
        """The invalidations that are about this entry."""
        return (
            EVERYTHING,
            InvalidationRule("model", self.model),
            InvalidationRule("namespace", self.namespace),
            InvalidationRule("entry", self.key),
            *(InvalidationRule("tag", tag) for tag in self.tags),
        )
