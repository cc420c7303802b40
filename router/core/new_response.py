"""New responses: their ids, their time, and the drafts that begin with them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from router.dialects.responses.echo import echo_fields
from router.response.builder import Draft

__all__ = ["new_draft", "new_id"]


def new_id(prefix: str) -> str:
    """A fresh id: the prefix and 48 hex digits, the first 8 of them the time, as OpenAI's are.

    Neighbours in time are neighbours in an index, which makes storing them several times cheaper.
    """
    return f"{prefix}{int(time.time() * 65536):012x}{os.urandom(18).hex()}"


def new_draft(
    body: Mapping[str, Any],
    *,
    muted: bool = False,
    born: tuple[str, int] | None = None,
    begun: int = 0,
) -> Draft:
    """The draft of the response to a validated create request; the rest is as for ``Draft``."""
    return Draft(
        echo=echo_fields(body, model=body["model"]),
        new_id=new_id,
        now=_now,
        muted=muted,
        born=born,
        begun=begun,
    )


def _now() -> int:
    return int(time.time())
