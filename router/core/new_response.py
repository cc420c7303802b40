"""New responses: their ids, their time, and the response builders that begin with them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from router.dialects.responses.echo import echo_fields
from router.response.builder import ResponseBuilder

__all__ = ["new_builder", "new_id"]


def new_id(prefix: str) -> str:
    """A fresh id: the prefix and 48 hex digits, the first 8 of them the time, as OpenAI's are.

    Neighbours in time are neighbours in an index, which makes storing them several times cheaper.
    """
    return f"{prefix}{int(time.time() * 65536):012x}{os.urandom(18).hex()}"


def new_builder(
    body: Mapping[str, Any],
    *,
    muted: bool = False,
    created: tuple[str, int] | None = None,
    first_sequence: int = 0,
) -> ResponseBuilder:
    """The response builder of the response to a validated create request; the rest is as for
    ``ResponseBuilder``.
    """
    return ResponseBuilder(
        echo=echo_fields(body, model=body["model"]),
        new_id=new_id,
        now=_now,
        muted=muted,
        created=created,
        first_sequence=first_sequence,
    )


def _now() -> int:
    return int(time.time())
