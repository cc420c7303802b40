"""Reports are what a plain sum over the rows says, on both databases."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.core.usage_record import NANO, NO_TOKENS, Kind, Provenance, Tokens, UsageRecord
from router.errors import InvalidRequest
from router.state.database import Database
from router.state.statement import Statement, StatementStep
from router.usage import report as report_module
from router.usage.period import moment, month_start
from router.usage.report import BUCKETS, COLUMNS, Bucket, UsageReport, spent, usage
from router.usage.totals import UsageTotals
from tests.support.state import database, database_url, opened, postgresql_url
from tests.support.usage import recorded, row

__all__ = ["database", "database_url"]

HOUR = 3600
START = 1_700_000_000 // 86400 * 86400
CLEAR = StatementStep(Statement("DELETE FROM usage WHERE id <> :id"), [{"id": ""}])


def attribute(one: UsageRecord, name: str) -> list[str]:
    """In which groups a row is."""
    if name == "tag":
        return sorted(set(one.tags)) or [""]
    if name == "tags":
        return [",".join(sorted(set(one.tags)))]
    if name in ("session", "agent"):
        return [one.session.id if name == "session" else one.session.agent]
    value = getattr(one, name)
    return [value.value if isinstance(value, Kind | Provenance) else value]


def plainly(rows: Sequence[UsageRecord]) -> UsageTotals:
    """The sums of rows."""
    total = UsageTotals()
    for one in rows:
        hit = one.provenance is Provenance.CACHED
        asked = not hit and one.kind is not Kind.TOOL
        by = {p: one.tokens if one.provenance is p else NO_TOKENS for p in Provenance}
        total.add(
            UsageTotals(
                requests=int(one.kind in (Kind.FIRST, Kind.CACHE)),
                attempts=int(asked),
                hits=int(hit),
                reported=by[Provenance.REPORTED],
                estimated=by[Provenance.ESTIMATED],
                saved=by[Provenance.CACHED],
                cost=0 if hit else one.cost or 0,
                saved_cost=one.cost or 0 if hit else 0,
                priced=int(asked and one.cost is not None),
                unpriced=int(not hit and one.cost is None and one.tokens.total > 0),
            )
        )
    return total


def expected(
    rows: Sequence[UsageRecord], by: Sequence[str], bucket: Bucket | None
) -> list[UsageTotals]:
    """The groups of rows, in any order."""
    groups: dict[tuple[Any, ...], list[UsageRecord]] = defaultdict(list)
    for one in rows:
        places: list[tuple[Any, ...]] = [
            (None if bucket is None else int(one.at) // BUCKETS[bucket] * BUCKETS[bucket],)
        ]
        for name in by:
            places = [(*place, value) for place in places for value in attribute(one, name)]
        for place in places:
            groups[place].append(one)
    found = []
    for (start, *values), members in groups.items():
        total = plainly(members)
        total.group, total.start = dict(zip(by, values, strict=True)), start
        found.append(total)
    return found


def compared(groups: Sequence[UsageTotals]) -> list[str]:
    return sorted(map(repr, groups))


COUNT = st.integers(0, 10**12)
ROWS = st.lists(
    st.builds(
        row,
        at=st.one_of(
            st.integers(START, START + 50 * HOUR).map(float),
            st.floats(START, START + 3 * HOUR),
            st.sampled_from([START + HOUR, START + HOUR - 0.5, START + HOUR - 1e-6, START + 1e-3]),
        ),
        key=st.sampled_from(["ann", "bob"]),
        tags=st.sampled_from([(), ("a",), ("b", "a"), ("aa",), ("a", "a_"), ("%",)]),
        kind=st.sampled_from(Kind),
        model=st.sampled_from(["m", "n", "na\u00efve' OR 1=1 --", ""]),
        tokens=st.builds(Tokens, COUNT, COUNT, COUNT, COUNT),
        cost=st.one_of(st.none(), st.integers(0, 2**62)),
        provenance=st.sampled_from(Provenance),
        outcome=st.sampled_from(["ok", "failed"]),
    ),
    max_size=25,
)
BY = st.lists(st.sampled_from(sorted(COLUMNS)), max_size=4, unique=True)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_against_a_plain_sum(kind: str, tmp_path: Path) -> None:
    with asyncio.Runner() as runner:

        async def check(
            store: Database,
            rows: list[UsageRecord],
            by: list[str],
            bucket: Bucket | None,
            period: tuple[float, float | None],
            filters: dict[str, str],
        ) -> None:
            await store.write(CLEAR)
            if rows:
                await recorded(store, *rows)
            since, until = period
            wanted = [
                one
                for one in rows
                if since <= one.at < (until or 1e12)
                and all(value in attribute(one, name) for name, value in filters.items())
            ]
            found = await usage(
                store, by=by, since=since, until=until, bucket=bucket, filters=filters
            )
            assert found.total == plainly(wanted)
            if by or bucket:
                assert compared(found.groups) == compared(expected(wanted, by, bucket))
            else:
                assert found.groups == []
            assert not found.more

        times = st.tuples(
            st.sampled_from([0.0, START + 0.0, START + HOUR - 0.5]),
            st.sampled_from([None, START + HOUR + 0.0, START + 20.5 * HOUR]),
        )
        conditions = st.fixed_dictionaries(
            {},
            optional={
                "key": st.just("ann"),
                "tag": st.sampled_from(["a", "a_", "%"]),
                "model": st.sampled_from(["m", "na\u00efve' OR 1=1 --"]),
                "provenance": st.just("cached"),
            },
        )

        def run(url: str) -> None:
            store_at = opened(url)
            store = runner.run(store_at.__aenter__())
            try:

                @settings(
                    max_examples=60,
                    deadline=None,
                    suppress_health_check=[HealthCheck.too_slow],
                    database=None,
                )
                @given(ROWS, BY, st.sampled_from([None, "hour", "day"]), times, conditions)
                def examples(
                    rows: list[UsageRecord],
                    by: list[str],
                    bucket: Bucket | None,
                    period: tuple[float, float | None],
                    filters: dict[str, str],
                ) -> None:
                    runner.run(check(store, rows, by, bucket, period, filters))

                examples()
            finally:
                runner.run(store_at.__aexit__(None, None, None))

        if kind == "sqlite":
            run(f"sqlite:///{tmp_path / 'state.db'}")
        else:
            server = postgresql_url()
            url = runner.run(server.__aenter__())
            try:
                run(url)
            finally:
                runner.run(server.__aexit__(None, None, None))


async def test_sums_beyond_64_bits(database: Database) -> None:
    await recorded(database, *[row(cost=2**62 + n) for n in range(20)])
    found = await usage(database, since=0.0, by=["key"])
    assert found.total.cost == found.groups[0].cost == 20 * 2**62 + 190


async def test_the_order_and_the_limit(database: Database) -> None:
    for day in range(3):
        for number in range(5):
            at = START + day * 86400.0
            await recorded(database, row(at=at, model=f"m{number}", cost=number * 10))
    found = await usage(database, since=0.0, by=["model"], limit=2)
    assert [(one.group["model"], one.cost) for one in found.groups] == [("m4", 120), ("m3", 90)]
    assert found.more
    assert (found.total.cost, found.total.attempts) == (300, 15)
    daily = await usage(database, since=0.0, by=["model"], bucket="day", limit=6)
    assert [(one.start, one.group["model"]) for one in daily.groups] == [
        *[(START, f"m{number}") for number in (4, 3, 2, 1, 0)],
        (START + 86400, "m4"),
    ]
    assert daily.more
    assert not (await usage(database, since=0.0, by=["model"], limit=5)).more


async def test_limits_count_for_tags_too(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(database, *[row(tags=(f"t{n}", "all"), cost=n) for n in range(10)])
    found = await usage(database, since=0.0, by=["tag"], limit=3)
    assert [one.group["tag"] for one in found.groups] == ["all", "t9", "t8"]
    assert (found.more, found.total.cost) == (True, 45)
    monkeypatch.setattr(report_module, "MOST_GROUPS", 9)
    with pytest.raises(InvalidRequest) as caught:
        await usage(database, since=0.0, by=["tag"])
    assert (caught.value.param, caught.value.code) == ("by", "too_many_groups")
    assert (await usage(database, since=0.0, by=["tags"])).more


async def test_nothing_at_all(database: Database) -> None:
    assert await usage(database, since=0.0) == UsageReport([], UsageTotals(), False)
    assert await usage(database, since=0.0, by=["key"], bucket="day") == UsageReport(
        [], UsageTotals(), False
    )


async def test_a_column_of_the_clients_own(database: Database) -> None:
    for more in ({"by": ["id"]}, {"filters": {"id": "x"}}, {"by": ["1; DROP TABLE usage"]}):
        with pytest.raises(KeyError):
            await usage(database, since=0.0, **more)


async def test_what_was_spent(database: Database) -> None:
    await recorded(
        database,
        row(at=10.0, cost=1),
        row(at=20.0, cost=2, tags=("a",)),
        row(at=20.0, cost=None, tags=("a",), key="bob", kind=Kind.RETRY),
        row(at=30.0, cost=7, tags=("a",), provenance=Provenance.CACHED),
        row(at=30.0, cost=4, tags=("ab",), provenance=Provenance.ESTIMATED),
    )
    assert await spent(database, key="ann", since=0.0) == (45, 7)
    assert await spent(database, key="ann", since=20.0) == (30, 6)
    assert await spent(database, tag="a", since=0.0) == (30, 2)
    assert await spent(database, tag="nobody", since=0.0) == (0, 0)


def test_an_unknown_price_is_not_zero() -> None:
    assert UsageTotals().cost_usd == 0
    assert UsageTotals(unpriced=1).cost_usd is None
    assert UsageTotals(unpriced=1, priced=1, cost=NANO).cost_usd == 1
    assert UsageTotals(unpriced=1).shown()["cost_usd"] is None


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("7d", NOW - 7 * 86400),
        ("24h", NOW - 86400),
        ("30m", NOW - 1800),
        ("2w", NOW - 14 * 86400),
        (" 1d ", NOW - 86400),
        ("999999w", 0.0),
        ("2026-01-31", 1_769_817_600.0),
        ("2026-01-31T12:00", 1_769_860_800.0),
        ("2026-01-31T12:00:00Z", 1_769_860_800.0),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800.0),
        ("1769860800", 1_769_860_800.0),
        ("1769860800.5", 1_769_860_800.5),
    ],
)
def test_times_as_people_write_them(text: str, time: float) -> None:
    assert moment(text, NOW) == time


@pytest.mark.parametrize(
    "text", ["", "d", "-1d", "yesterday", "1e9", "nan", "2026-13-01", "1960-01-01", "\u0661d", "7D"]
)
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must "):
        moment(text, NOW)


def test_the_month_begins() -> None:
    assert month_start(NOW) == moment("2023-11-01", NOW)
    assert month_start(moment("2024-03-01", NOW)) == moment("2024-03-01", NOW)
