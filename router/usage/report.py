"""Reading the ledger: who used how much in a time, in groups.

Which columns and conditions a statement has is put together from fixed tables; what a client wrote
is never part of it, only of its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from router.core.usage_record import Tokens
from router.errors import InvalidRequest
from router.state.database import Database
from router.state.statement import Statement, Value
from router.state.usage import split_tags
from router.usage.totals import UsageTotals

__all__ = [
    "BUCKETS",
    "COLUMNS",
    "FILTERS",
    "MOST_GROUPS",
    "Bucket",
    "UsageReport",
    "spent",
    "usage",
]

Bucket = Literal["hour", "day"]

COLUMNS: Final[Mapping[str, str]] = {
    "key": "key",
    "tag": "tags",
    "tags": "tags",
    "model": "model",
    "served": "served",
    "endpoint": "endpoint",
    "operation": "operation",
    "kind": "kind",
    "outcome": "outcome",
    "provenance": "provenance",
    "session": "session",
    "agent": "agent",
}
"""What usage is grouped by, and the column for it. By ``tag`` a row counts for each of its tags,
and is in the group '' without any; ``tags`` are all of a row's together. Rows that were rolled up
have no ``session`` and no ``agent``.
"""

FILTERS: Final = tuple(name for name in COLUMNS if name != "tags")
"""What one value can be asked for of."""

BUCKETS: Final[Mapping[Bucket, int]] = {"hour": 3600, "day": 86_400}
"""Seconds. Days are those of UTC."""

MOST_GROUPS: Final = 10_000
"""A report has no more than that."""

# Both databases agree on it, unlike on what CAST does to a fraction.
_SECOND: Final = "(CAST(at AS {int}) - CASE WHEN CAST(at AS {int}) > at THEN 1 ELSE 0 END)"
_HIT: Final = "provenance = 'cached'"
_ASKED: Final = f"NOT ({_HIT}) AND kind <> 'tool'"
"""An attempt: a model was asked at an endpoint."""

_TAGGED: Final = "replace(tags, ',' || CAST(:tag AS TEXT) || ',', '') <> tags"
_USED: Final = "provenance <> 'cached' AND input + output > 0 AND cost IS NULL"


def _total(column: str, condition: str) -> str:
    return f"CAST(COALESCE(SUM(CASE WHEN {condition} THEN {column} END), 0) AS {{int}})"


def _money(condition: str) -> tuple[str, str]:
    """Whole dollars and the rest apart: their sums stay within 64 bits, whatever is in the rows."""
    return _total("cost / 1000000000", condition), _total("cost % 1000000000", condition)


_KINDS: Final = ("input", "cached", "output", "reasoning")
_SUMS: Final = (
    _total("attempts", "kind IN ('first', 'cache')"),
    _total("attempts", _ASKED),
    _total("attempts", _HIT),
    *(_total(kind, "provenance = 'reported'") for kind in _KINDS),
    *(_total(kind, "provenance = 'estimated'") for kind in _KINDS),
    *(_total(kind, _HIT) for kind in _KINDS),
    *_money(f"NOT ({_HIT})"),
    *_money(_HIT),
    _total("attempts", f"{_ASKED} AND cost IS NOT NULL"),
    _total("attempts", _USED),
)
_ORDER: Final = "COALESCE(SUM(CASE WHEN provenance <> 'cached' THEN cost * 1.0 END), 0) DESC"


@dataclass(slots=True)
class UsageReport:
    """``groups`` in order: by time, then from the dearest; ``total`` is of all rows, also of groups
    that were left out. ``more`` says that there are such.
    """

    groups: list[UsageTotals]
    total: UsageTotals
    more: bool

    def shown(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "data": [group.shown() for group in self.groups],
            "total": self.total.shown(),
            "has_more": self.more,
        }


async def usage(
    database: Database,
    *,
    by: Sequence[str] = (),
    since: float,
    until: float | None = None,
    bucket: Bucket | None = None,
    filters: Mapping[str, str] | None = None,
    limit: int = MOST_GROUPS,
) -> UsageReport:
    """What the rows from ``since`` to before ``until`` (Unix time; None: no end) come to.

    ``by`` is out of ``COLUMNS``, the names of ``filters`` out of ``FILTERS``. Raises
    InvalidRequest where there are more than ``MOST_GROUPS`` sets of tags to tell apart, and
    StateUnavailable.
    """
    by = tuple(dict.fromkeys(by))
    filters = dict(filters or {})
    period: dict[str, Value] = {"since": since, **filters}
    if until is not None:
        period["until"] = until
    where = _where(filters, until is not None)
    apart = "tag" in by
    most = MOST_GROUPS if apart else min(limit, MOST_GROUPS)
    statement = _grouped(by, bucket, where, most + 1)
    groups = [_usage(row, by, bucket) for row in await database.read(statement, **period)]
    more = len(groups) > most
    if more and apart:
        raise InvalidRequest(
            "There are too many groups to tell apart by tag: choose a shorter time, longer "
            "buckets, or fewer columns.",
            code="too_many_groups",
            param="by",
        )
    if more:
        ((*sums,),) = await database.read(_grouped((), None, where, 1), **period)
        total = _usage(tuple(sums), (), None)
        groups = groups[:most]
    else:
        total = UsageTotals()
        for group in groups:
            total.add(group)
    if apart:
        groups = _by_tag(groups)
    if not (by or bucket):
        groups = []
    groups.sort(key=_place)
    return UsageReport(groups[:limit], total, more or len(groups) > limit)


async def spent(
    database: Database, *, key: str | None = None, tag: str | None = None, since: float
) -> tuple[int, int]:
    """The tokens and the cost (nano-USD) of what a key, or all keys with a tag, used since then.

    Answers from the cache cost nothing. Raises StateUnavailable.
    """
    filters = {name: value for name, value in (("key", key), ("tag", tag)) if value is not None}
    report = await usage(database, since=since, filters=filters)
    return report.total.tokens.total, report.total.cost


def _where(filters: Mapping[str, str], ends: bool) -> str:
    conditions = ["at >= CAST(:since AS {real})"]
    if ends:
        conditions.append("at < CAST(:until AS {real})")
    for name in filters:
        column = COLUMNS[name]
        conditions.append(_TAGGED if name == "tag" else f"{column} = :{column}")
    return " AND ".join(conditions)


def _grouped(by: Sequence[str], bucket: Bucket | None, where: str, limit: int) -> Statement:
    """Its columns: the bucket's number if there are buckets, those of ``by``, the sums."""
    groups = [f"{_SECOND} / {BUCKETS[bucket]}"] if bucket is not None else []
    groups += [COLUMNS[name] for name in by]
    numbers = ", ".join(str(number) for number in range(1, len(groups) + 1))
    order = f"{'1, ' if bucket is not None else ''}{_ORDER}, {numbers}"
    grouped = f"GROUP BY {numbers} ORDER BY {order}" if groups else ""
    columns = ", ".join([*groups, *_SUMS])
    return Statement(f"SELECT {columns} FROM usage WHERE {where} {grouped} LIMIT {limit}")


def _usage(row: tuple[Any, ...], by: Sequence[str], bucket: Bucket | None) -> UsageTotals:
    start = None
    if bucket is not None:
        start, row = row[0] * BUCKETS[bucket], row[1:]
    group = dict(zip(by, row, strict=False))
    if "tags" in group:
        group["tags"] = ",".join(split_tags(group["tags"]))
    requests, attempts, hits, *sums = row[len(by) :]
    dollars, cost, saved_dollars, saved, priced, unpriced = sums[12:]
    return UsageTotals(
        group,
        start,
        requests,
        attempts,
        hits,
        Tokens(*sums[:4]),
        Tokens(*sums[4:8]),
        Tokens(*sums[8:12]),
        dollars * 10**9 + cost,
        saved_dollars * 10**9 + saved,
        priced,
        unpriced,
    )


def _by_tag(groups: list[UsageTotals]) -> list[UsageTotals]:
    """Groups by sets of tags as groups by tag: what has several counts in each of them."""
    found: dict[tuple[Any, ...], UsageTotals] = {}
    for one in groups:
        for tag in split_tags(one.group["tag"]) or [""]:
            group = {**one.group, "tag": tag}
            place = (one.start, *group.values())
            found.setdefault(place, UsageTotals(group, one.start)).add(one)
    return list(found.values())


def _place(group: UsageTotals) -> tuple[Any, ...]:
    tokens = group.tokens.total
    return group.start or 0, -group.cost, -tokens, -group.requests, *group.group.values()
