"""The body of ``POST /v1/responses/compact``: parsing and validation."""

from __future__ import annotations

from typing import Any

from router.dialects.checks import missing
from router.dialects.responses.schema import check_fields, parse_object

__all__ = ["parse_compact"]


def parse_compact(raw: bytes) -> dict[str, Any]:
    """A request body with ``model``, and ``input`` or ``previous_response_id`` or both.

    ``null`` counts as absent, unknown fields pass, the others are those of a create request.
    Raises InvalidRequest with the code and the path of the field.
    """
    body = parse_object(raw)
    if body.get("model") in (None, ""):
        raise missing("model")
    check_fields(body)
    if body.get("input") in (None, []) and body.get("previous_response_id") is None:
        raise missing("input")
    return body
