"""What of one Response object also holds for another that gives the same answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.response.builder import ResponseBuilder

__all__ = ["OUTCOME", "retold"]

_OWN: Final = frozenset({"id", "object", "created_at", "billing"})
"""What each response has for itself, beside the fields of its request."""

OUTCOME: Final = (
    "status",
    "completed_at",
    "error",
    "incomplete_details",
    "output",
    "output_text",
    "usage",
)
"""What came of a request."""

_NOT_RETOLD: Final = _OWN.union(OUTCOME)

_MAY_CHANGE: Final = "service_tier"


def retold(builder: ResponseBuilder, fields: Mapping[str, Any], *, told: bool) -> dict[str, Any]:
    """Those of another Response's ``fields`` that this response builder's may have, too: neither
    what each has for itself nor the outcome.

    ``told``: the client has seen what the response builder says of itself, so that it must stay.
    """
    own = builder.own_fields
    kept = {
        name: value for name, value in fields.items() if name not in _NOT_RETOLD and name not in own
    }
    if told:
        for name in builder.echo:
            if name != _MAY_CHANGE:
                kept.pop(name, None)
    return kept
