"""What a request's tool of type ``file_search`` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.parameters import integer, strings
from router.errors import InvalidRequest
from router.vector_stores.filters import Condition, parse_filter
from router.vector_stores.requests import MAX_RESULTS, RankingOptions, parse_ranking

__all__ = ["FileSearchOptions", "read_file_search"]

_RESULTS: Final = 10
_MOST_STORES: Final = 20
_check_results = integer(1, MAX_RESULTS)


@dataclass(frozen=True, slots=True)
class FileSearchOptions:
    """In which stores is searched, and for how much."""

    stores: tuple[str, ...]
    limit: int
    condition: Condition | None
    ranking: RankingOptions


def read_file_search(tool: Mapping[str, Any], where: str) -> FileSearchOptions:
    """The options of the tool at the path ``where``; raises InvalidRequest that names the field.

    Without stores nothing is found.
    """
    stores = tool.get("vector_store_ids")
    if stores is None:
        stores = []
    strings(stores, f"{where}.vector_store_ids")
    if len(stores) > _MOST_STORES:
        raise InvalidRequest(
            f"Invalid '{where}.vector_store_ids': no more than {_MOST_STORES} are searched at "
            "once.",
            code="invalid_value",
            param=f"{where}.vector_store_ids",
        )
    limit = tool.get("max_num_results")
    if limit is None:
        limit = _RESULTS
    _check_results(limit, f"{where}.max_num_results")
    return FileSearchOptions(
        tuple(dict.fromkeys(stores)),
        limit,
        parse_filter(tool.get("filters"), f"{where}.filters"),
        parse_ranking(tool.get("ranking_options"), f"{where}.ranking_options"),
    )
