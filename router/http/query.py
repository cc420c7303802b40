"""Query parameters: those of the Responses API, and which there are at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.errors import InvalidRequest

__all__ = ["is_true", "only", "starting_after"]

_TRUE: Final = frozenset({"true", "1"})
_MAX_DIGITS: Final = 20
_MAX_EVENT: Final = 2**53
_SHOWN: Final = 200


def is_true(value: str | None) -> bool:
    """Whether a query parameter says yes."""
    return value is not None and value.lower() in _TRUE


def starting_after(query: Mapping[str, str]) -> int:
    """The number of the last event that the client has, -1 for none; raises InvalidRequest."""
    given = query.get("starting_after")
    if given is None:
        return -1
    try:
        after = int(given[:_MAX_DIGITS])
    except ValueError:
        raise InvalidRequest(
            "Invalid 'starting_after': expected an integer, the sequence number of an event.",
            code="invalid_type",
            param="starting_after",
        ) from None
    if not -1 <= after <= _MAX_EVENT:
        raise InvalidRequest(
            "Invalid 'starting_after': expected the sequence number of an event.",
            code="invalid_value",
            param="starting_after",
        )
    return after


def only(query: Mapping[str, str], *known: str) -> None:
    """Raises InvalidRequest for a parameter that is not known."""
    for name in query:
        if name not in known:
            shown = name[:_SHOWN]
            raise InvalidRequest(
                f"Unknown parameter: '{shown}'.", code="unknown_parameter", param=shown
            )
