"""A client's request in its own API, beside the Responses request that it was decoded to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from router.errors import InvalidRequest

__all__ = ["NativeRequest"]


@dataclass(slots=True, eq=False, repr=False)
class NativeRequest:
    """A request as its client sent it, for endpoints that speak the client's own API: those of
    ``dialect``. Only where one of them serves the model there is one.

    ``query`` and ``headers`` go with ``body``. ``decoded`` is the Responses request that says the
    same. ``dropped_reasoning`` is how much encrypted reasoning any other endpoint is not sent, and
    ``refused`` why it cannot be asked at all.
    """

    dialect: str
    body: dict[str, Any]
    headers: Mapping[str, str]
    query: str = ""
    decoded: Mapping[str, Any] | None = None
    dropped_reasoning: int = 0
    refused: InvalidRequest | None = None
