"""The settings of the metrics."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from router.settings.section import Section
from router.settings.values import Secret, fail_at

__all__ = ["MetricsSettings"]


class MetricsSettings(Section):
    """Who may read /metrics: everybody, whoever has a client's key (``require_key``), or whoever
    has ``key``, which opens nothing else.
    """

    require_key: bool = False
    """Whether `/metrics` asks for a client's key."""
    key: Secret | None = None
    """A key of its own for `/metrics`, which opens nothing else."""

    @property
    def opened_by(self) -> Literal["none", "client", "metrics"]:
        """Whose key it asks for."""
        if self.key is not None:
            return "metrics"
        return "client" if self.require_key else "none"

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        if self.key is not None and self.require_key:
            fail_at("Metrics", [(("require_key",), "must be false where metrics.key is set")])
        return self
