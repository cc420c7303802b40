"""The models that stand in for a model that cannot be served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.core.key import Key
from router.settings.fallbacks import FallbackSettings
from router.settings.model_names import Patterns, by_either_name

__all__ = ["Fallbacks"]


class Fallbacks:
    """The configured fallbacks. A model's own name counts for more than a pattern that fits it."""

    def __init__(self, given: Mapping[str, FallbackSettings]) -> None:
        self._named = by_either_name(given)
        self._patterns = Patterns(given)

    def has(self, model: str) -> bool:
        """Whether there are any for this model."""
        return self._find(model) is not None

    def of(self, model: str, key: Key | None) -> tuple[str, Sequence[str]]:
        """The name or pattern that a model's fallbacks are configured by, and those of them that
        may stand in for it when ``key`` asks; None is nobody in particular.
        """
        found = self._find(model)
        if found is None:
            return model, ()
        name, fallback = found
        others = [other for other in fallback.models if other != model]
        if key is not None and fallback.for_keys == "allowed":
            others = [other for other in others if key.may_use(other)]
        return name, others

    def _find(self, model: str) -> tuple[str, FallbackSettings] | None:
        named = self._named.get(model)
        return self._patterns.find(model) if named is None else (model, named)
