"""What a trace is told of a request: the contract between the pipeline and whoever traces.

Whoever traces sets ``Exchange.trace`` when a request has started; without it nothing is told.
No method raises anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from router.core.usage_record import UsageRecord
from router.settings.schema import EndpointSettings

__all__ = ["NO_TRACE", "AttemptTrace", "Trace"]


class AttemptTrace(Protocol):
    """One attempt. ``headers`` go with its request, so that the endpoint continues the trace."""

    headers: Mapping[str, str]

    def over(self, record: UsageRecord) -> None:
        """It is over, and this is what came of it."""
        ...


class Trace(Protocol):
    """One request."""

    def attempt(self, endpoint: EndpointSettings, model: str) -> AttemptTrace:
        """An attempt is about to be sent; ``model`` is the endpoint's own name for it."""
        ...

    def tool(self, name: str, kind: str, server: str, seconds: float, error: str | None) -> None:
        """The router has run a tool, which took so long; ``error`` is the code of its error."""
        ...


class _NoTrace:
    """An attempt of which nothing is told."""

    headers: Mapping[str, str] = MappingProxyType({})

    def over(self, record: UsageRecord) -> None:
        """See ``AttemptTrace.over``."""


NO_TRACE: Final[AttemptTrace] = _NoTrace()
