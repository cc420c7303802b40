"""Pages of a list, and what a query says of one: ``limit``, ``order``, ``after``, ``include``.

A page begins after the object whose id is ``after`` and goes on in the direction of ``order``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.parameters import integer, one_of
from router.errors import InvalidRequest

__all__ = [
    "Page",
    "listing",
    "page_of",
    "parse_include",
    "parse_limit",
    "parse_page",
    "unknown_after",
]

_DEFAULT_LIMIT: Final = "20"
_MAX_DIGITS: Final = 20
_SHOWN: Final = 64
"""Characters of a client's value that an error repeats."""

_check_limit = integer(1, 100)
_check_order = one_of("asc", "desc")


@dataclass(frozen=True, slots=True)
class Page:
    """``limit`` objects at most; ``after`` is the id of the last one the client has."""

    limit: int = 20
    descending: bool = True
    after: str | None = None


def parse_page(query: Mapping[str, str]) -> Page:
    """What the query asks for; raise InvalidRequest for a bad ``limit`` or ``order``."""
    limit = parse_limit(query, _DEFAULT_LIMIT)
    _check_limit(limit, "limit")
    order = query.get("order", "desc")
    _check_order(order, "order")
    return Page(limit, order == "desc", query.get("after") or None)


def parse_limit(query: Mapping[str, str], default: str) -> int:
    """The ``limit`` of a query, whatever it is; raise InvalidRequest for what is no integer."""
    try:
        return int(query.get("limit", default)[:_MAX_DIGITS])
    except ValueError:
        raise InvalidRequest(
            "Invalid 'limit': expected an integer.", code="invalid_type", param="limit"
        ) from None


def parse_include(query: Mapping[str, str]) -> frozenset[str]:
    """What ``include`` or ``include[]`` name in a query, repeated (in a multi-dict) or with commas.

    A name that nothing knows is no error, as in the body of a create request.
    """
    return frozenset(
        name.strip()
        for key, value in query.items()
        if key in ("include", "include[]")
        for name in value.split(",")
        if name.strip()
    )


def listing(data: list[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    """The list object around one page; ``first_id`` and ``last_id`` of an empty one are null.

    So they are where an endpoint gave an item no id.
    """
    return {
        "object": "list",
        "data": data,
        "first_id": data[0].get("id") if data else None,
        "last_id": data[-1].get("id") if data else None,
        "has_more": has_more,
    }


def page_of(items: list[dict[str, Any]], page: Page) -> tuple[list[dict[str, Any]], bool]:
    """One page of a whole list in ascending order, and whether there is more after it.

    Raises InvalidRequest for an ``after`` that is not in the list.
    """
    ordered = items[::-1] if page.descending else items
    start = 0
    if page.after is not None:
        found = (i for i, item in enumerate(ordered, 1) if item["id"] == page.after)
        start = next(found, 0)
        if not start:
            raise unknown_after(page.after)
    end = start + page.limit
    return ordered[start:end], end < len(ordered)


def unknown_after(after: str, param: str = "after") -> InvalidRequest:
    """The error for a page that should begin after something that is not in the list, or end
    before it: ``param`` says which.
    """
    shown = after if len(after) <= _SHOWN else after[:_SHOWN] + "…"
    return InvalidRequest(
        f"Invalid '{param}': '{shown}' is not in this list.", code="invalid_value", param=param
    )
