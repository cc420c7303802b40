"""What an adapter has learned of an endpoint's models."""

from __future__ import annotations

from typing import Final

__all__ = ["ModelSet"]

_MAX_MODELS: Final = 1024


class ModelSet:
    """The models of which something was learned; past a bound the oldest is forgotten."""

    def __init__(self) -> None:
        self._models: dict[str, None] = {}

    def __contains__(self, model: str) -> bool:
        return model in self._models

    def discard(self, model: str) -> None:
        """It was not so."""
        self._models.pop(model, None)

    def add(self, model: str) -> None:
        """It was learned of this model."""
        self._models[model] = None
        if len(self._models) > _MAX_MODELS:
            del self._models[next(iter(self._models))]
