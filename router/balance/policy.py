"""Which endpoint a request goes to: pure, with the source of randomness handed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Candidate", "least_loaded"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Candidate(Generic[T]):
    """An endpoint that serves the model, as the policy sees it.

    ``in_flight`` of ``limit`` slots are taken; ``weight`` scales what it is worth; ``answers`` is
    false when it did not answer the last time it was asked. ``key`` is the caller's own.
    """

    key: T
    in_flight: int
    limit: int
    weight: float
    answers: bool

    @property
    def free(self) -> bool:
        """Whether a slot is free."""
        return self.in_flight < self.limit

    @property
    def load(self) -> float:
        """Requests in flight, by weight."""
        return self.in_flight / self.weight


def least_loaded(
    candidates: Iterable[Candidate[T]], random: Callable[[], float]
) -> Candidate[T] | None:
    """The candidate with a free slot that has the least in flight, ties broken by ``random``.

    One that does not answer is taken only when no other has a free slot: it may be back, and an
    attempt tells more than a refusal. None when every slot is taken.
    """
    best: Candidate[T] | None = None
    best_rank = (True, 0.0, 0.0)
    for candidate in candidates:
        if not candidate.free:
            continue
        rank = (not candidate.answers, candidate.load, random())
        if best is None or rank < best_rank:
            best, best_rank = candidate, rank
    return best
