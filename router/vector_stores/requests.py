"""What clients send to the routes of vector stores, checked. Raises InvalidRequest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.paging import Page, parse_page
from router.dialects.parameters import (
    array,
    boolean,
    bounded_string,
    decimal,
    integer,
    missing,
    object_,
    one_of,
    string,
    wrong_type,
)
from router.dialects.responses.field_types import check_metadata
from router.errors import InvalidRequest
from router.vector_stores.chunking import AUTO, ChunkingStrategy
from router.vector_stores.filters import Condition, parse_filter

__all__ = [
    "MAX_RESULTS",
    "AddedFile",
    "FilePage",
    "NewVectorStore",
    "RankingOptions",
    "VectorStoreSearch",
    "parse_attributes",
    "parse_batch",
    "parse_changed_attributes",
    "parse_file",
    "parse_file_page",
    "parse_new_store",
    "parse_ranking",
    "parse_search",
    "parse_store_changes",
    "parse_store_page",
]

MAX_RESULTS: Final = 50
_MAX_BATCH: Final = 2000
_MAX_NEW: Final = 500
_MAX_NAME: Final = 256
_MAX_DESCRIPTION: Final = 4096
_MAX_ATTRIBUTES: Final = 16
_MAX_KEY: Final = 64
_MAX_VALUE: Final = 512
_MAX_QUERY: Final = 4096
_MAX_QUERIES: Final = 5
_STATUSES: Final = ("in_progress", "completed", "failed", "cancelled")

_check_name = bounded_string(_MAX_NAME)
_check_description = bounded_string(_MAX_DESCRIPTION)
_check_days = integer(1, 365)
_check_size = integer(100, 4096)
_check_strategy = one_of("auto", "static")
_check_anchor = one_of("last_active_at")
_check_results = integer(1, MAX_RESULTS)
_check_share = decimal(0, 1)
_check_weight = decimal(0, 1000)
_check_query = bounded_string(_MAX_QUERY)
_check_status = one_of(*_STATUSES)
_RANKERS: Final = ("none", "auto", "default-2024-11-15", "default_2024_08_21")
_check_ranker = one_of(*_RANKERS)


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that is to be in a store."""

    file: str
    attributes: Mapping[str, Any]
    strategy: ChunkingStrategy


@dataclass(frozen=True, slots=True)
class NewVectorStore:
    """``expires_days`` is None for a store that stays."""

    name: str
    description: str | None
    expires_days: int | None
    metadata: Mapping[str, str]
    files: tuple[AddedFile, ...]


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """``embedding_weight`` and ``text_weight`` are those of the two rankings; ``threshold`` is the
    least score of a result.
    """

    threshold: float = 0.0
    embedding_weight: float = 1.0
    text_weight: float = 1.0


@dataclass(frozen=True, slots=True)
class VectorStoreSearch:
    """A search in one store, or several."""

    queries: tuple[str, ...]
    limit: int = 10
    condition: Condition | None = None
    ranking: RankingOptions = RankingOptions()


@dataclass(frozen=True, slots=True)
class FilePage:
    """A page of a store's files. ``before`` has it end before a file instead of begin after one;
    ``status`` leaves files of other statuses out.
    """

    page: Page
    before: str | None = None
    status: str | None = None


def parse_new_store(body: Mapping[str, Any]) -> NewVectorStore:
    """``POST /vector_stores``."""
    strategy = _strategy(body.get("chunking_strategy"), "chunking_strategy")
    ids = _file_ids(body["file_ids"], _MAX_NEW) if body.get("file_ids") is not None else ()
    return NewVectorStore(
        name=_text(body, "name", _check_name) or "",
        description=_text(body, "description", _check_description),
        expires_days=_days(body.get("expires_after")),
        metadata=_metadata(body),
        files=tuple(AddedFile(ident, {}, strategy) for ident in ids),
    )


def parse_store_changes(body: Mapping[str, Any]) -> dict[str, Any]:
    """``POST /vector_stores/{id}``: of ``name``, ``expires_days`` and ``metadata`` those that are
    to change.
    """
    changes: dict[str, Any] = {}
    if "name" in body:
        changes["name"] = _text(body, "name", _check_name) or ""
    if "expires_after" in body:
        changes["expires_days"] = _days(body["expires_after"])
    if "metadata" in body:
        changes["metadata"] = _metadata(body)
    return changes


def parse_file(body: Mapping[str, Any]) -> AddedFile:
    """``POST /vector_stores/{id}/files``."""
    return _added(body, "")


def parse_batch(body: Mapping[str, Any]) -> tuple[AddedFile, ...]:
    """``POST /vector_stores/{id}/file_batches``; each file once."""
    ids, files = body.get("file_ids"), body.get("files")
    if ids is not None and files is not None:
        raise _invalid("files", "give 'file_ids' or 'files', not both")
    if files is not None:
        array(files, "files")
        if not files:
            raise _invalid("files", "expected at least one file")
        _check_count(files, "files", _MAX_BATCH)
        added = [_added(one, f"files[{index}]") for index, one in enumerate(files)]
        return tuple({one.file: one for one in added}.values())
    if ids is None:
        raise missing("file_ids")
    attributes = parse_attributes(body.get("attributes"))
    strategy = _strategy(body.get("chunking_strategy"), "chunking_strategy")
    found = _file_ids(ids, _MAX_BATCH)
    if not found:
        raise _invalid("file_ids", "expected at least one file")
    return tuple(AddedFile(ident, attributes, strategy) for ident in found)


def parse_changed_attributes(body: Mapping[str, Any]) -> dict[str, Any]:
    """``POST /vector_stores/{id}/files/{file}``."""
    if "attributes" not in body:
        raise missing("attributes")
    return parse_attributes(body["attributes"])


def parse_attributes(given: Any, where: str = "attributes") -> dict[str, Any]:
    """The attributes of a file; none where they are null."""
    if given is None:
        return {}
    object_(given, where)
    if len(given) > _MAX_ATTRIBUTES:
        raise _invalid(where, f"a file has {_MAX_ATTRIBUTES} attributes at most")
    for key, value in given.items():
        if len(key) > _MAX_KEY:
            raise _invalid(where, f"a key has {_MAX_KEY} characters at most")
        if type(value) not in (str, int, float, bool):
            raise wrong_type(f"{where}.{key}", "a string, a number or a boolean", value)
        if isinstance(value, str) and len(value) > _MAX_VALUE:
            raise _invalid(f"{where}.{key}", f"a value has {_MAX_VALUE} characters at most")
        if "\0" in key or (isinstance(value, str) and "\0" in value):
            raise _invalid(where, "NUL is not allowed")
    return dict(given)


def parse_search(body: Mapping[str, Any]) -> VectorStoreSearch:
    """``POST /vector_stores/{id}/search``."""
    given = body.get("query")
    if given is None:
        raise missing("query")
    queries = given if type(given) is list else [given]
    for index, query in enumerate(queries):
        _check_query(query, f"query[{index}]" if type(given) is list else "query")
    if not queries or len(queries) > _MAX_QUERIES:
        raise _invalid("query", f"expected one to {_MAX_QUERIES} queries")
    if not any(query.strip() for query in queries):
        raise _invalid("query", "it is empty")
    if body.get("rewrite_query") is not None:
        boolean(body["rewrite_query"], "rewrite_query")
    return VectorStoreSearch(
        tuple(queries),
        parse_limit(body.get("max_num_results"), "max_num_results", 10),
        parse_filter(body.get("filters"), "filters"),
        parse_ranking(body.get("ranking_options"), "ranking_options"),
    )


def parse_limit(given: Any, where: str, default: int) -> int:
    """The most results of a search."""
    if given is None:
        return default
    _check_results(given, where)
    limit: int = given
    return limit


def parse_ranking(given: Any, where: str) -> RankingOptions:
    """``ranking_options``. The ranker ``none`` goes by the vectors alone."""
    if given is None:
        return RankingOptions()
    object_(given, where)
    ranker, threshold = given.get("ranker"), given.get("score_threshold")
    if ranker is not None:
        _check_ranker(ranker, f"{where}.ranker")
    if threshold is not None:
        _check_share(threshold, f"{where}.score_threshold")
    weights = {"embedding_weight": 1.0, "text_weight": 0.0 if ranker == "none" else 1.0}
    hybrid = given.get("hybrid_search")
    if hybrid is not None:
        object_(hybrid, f"{where}.hybrid_search")
        for name in weights:
            value = hybrid.get(name)
            if value is None:
                raise missing(f"{where}.hybrid_search.{name}")
            _check_weight(value, f"{where}.hybrid_search.{name}")
            weights[name] = float(value)
        if not any(weights.values()):
            raise _invalid(f"{where}.hybrid_search", "one of the weights has to be above 0")
    return RankingOptions(float(threshold or 0.0), **weights)


def parse_store_page(query: Mapping[str, str]) -> FilePage:
    """``GET /vector_stores``."""
    before = query.get("before") or None
    page = parse_page(query)
    if before is not None and page.after is not None:
        raise _invalid("before", "give 'after' or 'before', not both")
    return FilePage(page, before)


def parse_file_page(query: Mapping[str, str]) -> FilePage:
    """``GET /vector_stores/{id}/files``."""
    found = parse_store_page(query)
    status = query.get("filter") or None
    if status is not None:
        _check_status(status, "filter")
    return FilePage(found.page, found.before, status)


def _added(given: Any, where: str) -> AddedFile:
    prefix = f"{where}." if where else ""
    if where:
        object_(given, where)
    ident = given.get("file_id")
    if ident is None:
        raise missing(f"{prefix}file_id")
    string(ident, f"{prefix}file_id")
    return AddedFile(
        ident,
        parse_attributes(given.get("attributes"), f"{prefix}attributes"),
        _strategy(given.get("chunking_strategy"), f"{prefix}chunking_strategy"),
    )


def _strategy(given: Any, where: str) -> ChunkingStrategy:
    if given is None:
        return AUTO
    object_(given, where)
    kind = given.get("type")
    if kind is None:
        raise missing(f"{where}.type")
    _check_strategy(kind, f"{where}.type")
    if kind == "auto":
        return AUTO
    static = given.get("static")
    if static is None:
        raise missing(f"{where}.static")
    object_(static, f"{where}.static")
    for name in ("max_chunk_size_tokens", "chunk_overlap_tokens"):
        if static.get(name) is None:
            raise missing(f"{where}.static.{name}")
    size, overlap = static["max_chunk_size_tokens"], static["chunk_overlap_tokens"]
    _check_size(size, f"{where}.static.max_chunk_size_tokens")
    integer(0)(overlap, f"{where}.static.chunk_overlap_tokens")
    if overlap > size // 2:
        raise _invalid(
            f"{where}.static.chunk_overlap_tokens",
            "it must not exceed half of 'max_chunk_size_tokens'",
        )
    return ChunkingStrategy(size, overlap)


def _days(given: Any) -> int | None:
    if given is None:
        return None
    object_(given, "expires_after")
    for name in ("anchor", "days"):
        if given.get(name) is None:
            raise missing(f"expires_after.{name}")
    _check_anchor(given["anchor"], "expires_after.anchor")
    _check_days(given["days"], "expires_after.days")
    days: int = given["days"]
    return days


def _file_ids(given: Any, most: int) -> tuple[str, ...]:
    array(given, "file_ids")
    _check_count(given, "file_ids", most)
    for index, ident in enumerate(given):
        string(ident, f"file_ids[{index}]")
    return tuple(dict.fromkeys(given))


def _check_count(given: list[Any], where: str, most: int) -> None:
    if len(given) > most:
        raise _invalid(where, f"no more than {most} files are taken at once")


def _text(body: Mapping[str, Any], name: str, check: Any) -> str | None:
    value = body.get(name)
    if value is None:
        return None
    check(value, name)
    if "\0" in value:
        raise _invalid(name, "NUL is not allowed")
    text: str = value
    return text


def _metadata(body: Mapping[str, Any]) -> dict[str, str]:
    given = body.get("metadata")
    if given is None:
        return {}
    check_metadata(given, "metadata")
    return dict(given)


def _invalid(where: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid '{where}': {why}.", code="invalid_value", param=where)
