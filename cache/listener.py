"""What the cache tells of itself, for metrics."""

from __future__ import annotations

__all__ = ["Listener"]


class Listener:
    """Hears nothing; whoever wants to know derives from it. All methods must be quick."""

    def looked_up(self, tier: str, result: str, seconds: float) -> None:
        """A look-up in the ``exact`` or ``semantic`` tier is over: ``hit``, ``miss`` or
        ``error``.
        """

    def skipped(self, reason: str) -> None:
        """The semantic tier did not judge a question, for this reason."""

    def vetoed(self, reason: str) -> None:
        """A question near enough was found to be another one, for this reason."""

    def matched(self, similarity: float) -> None:
        """A semantic hit."""

    def stored(self, kept: bool) -> None:
        """An answer was handed to the store, which kept it or not."""

    def store_failed(self, kind: str) -> None:
        """The store did not answer as it should; ``kind`` says how."""

    def compared(self, agreed: bool) -> None:
        """A semantic hit was compared with the model's own answer."""
