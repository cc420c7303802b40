"""What an adapter has learned of its endpoint from refusals."""

from __future__ import annotations

import time
from typing import Final

__all__ = ["ALL_MODELS", "ModelSet"]

_MAX_MODELS: Final = 1024

ALL_MODELS: Final = ""
"""In place of a model: it was learned of the endpoint."""


class ModelSet(dict[str, float]):
    """The models of which something was learned, each with the time (seconds, monotonic); past a
    bound the oldest is forgotten.
    """

    def add(self, model: str) -> None:
        """It was learned of this model."""
        self.pop(model, None)
        self[model] = time.monotonic()
        if len(self) > _MAX_MODELS:
            del self[next(iter(self))]

    def discard(self, model: str) -> None:
        """It was not so."""
        self.pop(model, None)

    def forget(self, before: float) -> None:
        """Forget what was learned before this time."""
        for model in [model for model, learned in self.items() if learned < before]:
            del self[model]
