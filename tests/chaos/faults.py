"""The ways in which a backend fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["HEALTHY", "Fault", "Kind", "Point"]

Kind = Literal["none", "error", "limit", "reset", "slow", "stall"]
"""``error`` is HTTP 500, ``limit`` HTTP 429, ``reset`` a TCP reset, ``stall`` eternal silence.
``slow`` answers well, and takes its time."""

Point = Literal["head", "output", "middle"]
"""How far an answer comes before its reset or stall: nothing at all has been sent, everything
before the first output, or half of the output."""

_TRACES: Final[dict[Kind, frozenset[str]]] = {
    "none": frozenset(),
    "error": frozenset({"error"}),
    "limit": frozenset({"limit"}),
    "reset": frozenset({"reset", "left"}),
    "slow": frozenset({"whole", "left"}),
    "stall": frozenset({"left"}),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to generation requests; lists of models are served as ever.

    ``share`` of the requests are affected, and only those for ``model``, where it is given.
    ``retry_after`` is in seconds and goes with ``limit``.
    """

    kind: Kind = "none"
    point: Point = "head"
    share: float = 1.0
    model: str | None = None
    retry_after: int = 0

    @property
    def cuts(self) -> bool:
        """Whether answers end in the middle of their output."""
        return self.point == "middle" and self.kind in ("reset", "stall")

    @property
    def constant(self) -> bool:
        """Whether every attempt fails, and does so before its first output."""
        return self.share == 1 and not self.cuts and self.kind in ("error", "reset", "stall")

    @property
    def traces(self) -> frozenset[str]:
        """How requests may end that have met it."""
        return _TRACES[self.kind]

    def __str__(self) -> str:
        words: list[str] = [self.kind]
        if self.kind in ("reset", "stall"):
            words.append(f"at {self.point}")
        if self.share < 1:
            words.append(f"{self.share:.0%}")
        if self.model is not None:
            words.append(f"of {self.model}")
        return " ".join(words)


HEALTHY = Fault()
