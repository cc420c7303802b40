"""What the cache tells of itself, for metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Protocol

__all__ = ["Listener"]


class Count(Protocol):
    """Counts."""

    def inc(self, amount: float = 1) -> None:
        """So many more."""


class Times(Protocol):
    """Collects how long something took."""

    def observe(self, amount: float) -> None:
        """Once more, in seconds."""


class _Unheard:
    """Counts and times for nobody."""

    def inc(self, amount: float = 1) -> None:
        """See ``Count``."""

    def observe(self, amount: float) -> None:
        """See ``Times``."""


class Listener:
    """Hears nothing; whoever wants to know derives from it. All methods must be quick.

    What every request comes to is counted without asking it: ``lookups`` by tier (``exact``,
    ``semantic``) and result (``hit``, ``miss``, ``error``), what those took in ``lookup_seconds``
    by tier, and in ``puts`` what was handed to the store, by result (``kept``, ``refused``).
    """

    lookups: Mapping[tuple[str, ...], Count] = defaultdict(_Unheard)
    lookup_seconds: Mapping[tuple[str, ...], Times] = defaultdict(_Unheard)
    puts: Mapping[tuple[str, ...], Count] = defaultdict(_Unheard)

    def skipped(self, reason: str) -> None:
        """The semantic tier did not judge a question, for this reason."""

    def vetoed(self, reason: str) -> None:
        """A question near enough was found to be another one, for this reason."""

    def matched(self, similarity: float) -> None:
        """A semantic hit."""

    def store_failed(self, kind: str) -> None:
        """The store did not answer as it should; ``kind`` says how."""

    def compared(self, agreed: bool) -> None:
        """A semantic hit was compared with the model's own answer."""
