"""Models as Anthropic's API lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from router.dialects.paging import parse_limit
from router.dialects.parameters import integer
from router.errors import InvalidRequest

__all__ = ["ModelsPage", "model_info", "models_page", "parse_models_page"]

_DEFAULT_LIMIT: Final = "20"
_SHOWN: Final = 64

_check_limit = integer(1, 1000)


@dataclass(frozen=True, slots=True)
class ModelsPage:
    """``limit`` models at most: those after one, or right before one."""

    limit: int
    after: str | None
    before: str | None


def parse_models_page(query: Mapping[str, str]) -> ModelsPage:
    """What a query asks for; raises InvalidRequest."""
    limit = parse_limit(query, _DEFAULT_LIMIT)
    _check_limit(limit, "limit")
    return ModelsPage(limit, query.get("after_id") or None, query.get("before_id") or None)


def models_page(names: Sequence[str], page: ModelsPage, created: int) -> dict[str, Any]:
    """One page of the models; raises InvalidRequest for one that is not in the list."""
    start, end = 0, len(names)
    if page.after is not None:
        start = _place(names, page.after, "after_id") + 1
    if page.before is not None:
        end = _place(names, page.before, "before_id")
    found = names[start:end]
    backwards = page.before is not None and page.after is None
    shown = found[-page.limit :] if backwards else found[: page.limit]
    return {
        "data": [model_info(name, created) for name in shown],
        "has_more": len(shown) < len(found),
        "first_id": shown[0] if shown else None,
        "last_id": shown[-1] if shown else None,
    }


def model_info(name: str, created: int) -> dict[str, Any]:
    """One model; ``created`` is in unix seconds."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
    }


def _place(names: Sequence[str], name: str, param: str) -> int:
    if name not in names:
        raise InvalidRequest(
            f"{param}: '{name[:_SHOWN]}' is not in this list.", code="invalid_value", param=param
        )
    return names.index(name)
