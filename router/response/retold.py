"""What of one Response object also holds for another that gives the same answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.response.builder import ResponseBuilder

__all__ = ["OUTCOME", "retold"]

_OWN: Final = frozenset(
    {
        "id",
        "object",
        "created_at",
        "background",
        "billing",
        "conversation",
        "instructions",
        "metadata",
        "moderation",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "store",
        "user",
    }
)
"""What each response and each request has for itself."""

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
    kept = {name: value for name, value in fields.items() if name not in _NOT_RETOLD}
    if told:
        for name in builder.echo:
            if name != _MAY_CHANGE:
                kept.pop(name, None)
    return kept
