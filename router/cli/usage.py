"""``pointsman usage``: report usage and cost, as the ledger has it.

It reads the database; a router may be running, whose last second is not in it yet. StateError is
left to the caller.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from router.cli.terminal import aligned, printable

if TYPE_CHECKING:
    from router.settings.schema import Settings
    from router.usage.report import Bucket, UsageReport
    from router.usage.totals import UsageTotals

__all__ = ["add_arguments", "run"]

_FILTERS: Final = ("key", "tag", "model", "endpoint")
_SECONDS: Final = 60.0
"""Nobody waits for this but the person who asked."""

_COUNTS: Final = (
    "requests", "attempts", "hits", "input", "cached", "output", "reasoning"
)  # fmt: skip
_CSV: Final = (
    *_COUNTS, "estimated_input", "estimated_output", "cost_usd", "unpriced",
    "saved_input", "saved_output", "saved_usd",
)  # fmt: skip


class _UsageCommandError(Exception):
    """A mistake on the command line; printed as it is."""


def add_arguments(usage: argparse.ArgumentParser) -> None:
    """Add the options."""
    usage.add_argument("--config", type=Path, required=True, metavar="FILE")
    usage.add_argument(
        "--by",
        default="key,model",
        metavar="A,B",
        help="key, tag, tags, model, served, endpoint, operation, kind, outcome, provenance "
        "(default: %(default)s)",
    )
    usage.add_argument(
        "--since",
        default="7d",
        metavar="TIME",
        help="7d, 24h, 30m, 2026-01-31 or 2026-01-31T12:00; UTC (default: %(default)s)",
    )
    usage.add_argument("--until", metavar="TIME", help="the same; exclusive")
    usage.add_argument("--bucket", choices=("hour", "day"), help="group by hour or day, in UTC")
    for name in _FILTERS:
        usage.add_argument(f"--{name}", metavar="NAME", help=f"only this {name}")
    usage.add_argument(
        "--limit",
        type=_count,
        default=1000,
        metavar="N",
        help="the most groups (default: %(default)s)",
    )
    usage.add_argument("--format", choices=("table", "json", "csv"), default="table")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= 10_000:
        raise argparse.ArgumentTypeError("must be a number from 1 to 10000")
    return int(text)


@dataclass(frozen=True, slots=True)
class _UsageQuery:
    by: tuple[str, ...]
    since: float
    until: float | None
    bucket: Bucket | None
    filters: Mapping[str, str]
    limit: int


def run(settings: Settings, args: argparse.Namespace) -> int:
    """Ask, print, and return the exit status: 2 for a wrong command line."""
    import asyncio

    try:
        question = _question(args, time.time())
        report = asyncio.run(_asked(settings, question))
    except _UsageCommandError as wrong:
        print(f"pointsman usage: {wrong}", file=sys.stderr)
        return 2
    show: Callable[[UsageReport, _UsageQuery], Iterator[str]] = {
        "table": _table, "json": _json, "csv": _csv
    }[args.format]  # fmt: skip
    try:
        print("\n".join(show(report, question)), flush=True)
    except BrokenPipeError:
        # Whoever reads has seen enough. Python would complain about it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _question(args: argparse.Namespace, now: float) -> _UsageQuery:
    from router.usage.report import COLUMNS

    by = tuple(name.strip() for name in args.by.split(",") if name.strip())
    for name in by:
        if name not in COLUMNS:
            raise _UsageCommandError(f"--by: '{name}' is none of {', '.join(COLUMNS)}")
    since = _moment("--since", args.since, now)
    until = _moment("--until", args.until, now) if args.until is not None else None
    if until is not None and until <= since:
        raise _UsageCommandError("--until: must be after --since")
    given = {name: getattr(args, name) for name in _FILTERS}
    filters = {name: value for name, value in given.items() if value is not None}
    return _UsageQuery(tuple(dict.fromkeys(by)), since, until, args.bucket, filters, args.limit)


def _moment(option: str, text: str, now: float) -> float:
    from router.usage.period import moment

    try:
        return moment(text, now)
    except ValueError as exc:
        raise _UsageCommandError(f"{option}: {exc}") from None


async def _asked(settings: Settings, question: _UsageQuery) -> UsageReport:
    from router.errors import InvalidRequest, RouterError
    from router.state.connect import open_database
    from router.state.maintenance.access import given_up, is_current
    from router.usage.report import UsageReport, usage
    from router.usage.totals import UsageTotals

    if not await is_current(settings.state):
        return UsageReport([], UsageTotals(), False)
    patient = max(settings.state.timeout, _SECONDS)
    database = open_database(settings.state.model_copy(update={"timeout": patient}))
    await database.start()
    try:
        return await usage(
            database,
            by=question.by,
            since=question.since,
            until=question.until,
            bucket=question.bucket,
            filters=question.filters,
            limit=question.limit,
        )
    except InvalidRequest as exc:
        raise _UsageCommandError(exc.message) from None
    except RouterError as exc:
        raise given_up(exc) from None
    finally:
        await database.close()


def _json(report: UsageReport, question: _UsageQuery) -> Iterator[str]:
    import orjson

    shown = {
        "since": question.since,
        "until": question.until,
        "bucket": question.bucket,
        "by": question.by,
        **report.shown(),
    }
    yield orjson.dumps(shown).decode()


def _csv(report: UsageReport, question: _UsageQuery) -> Iterator[str]:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(["start"] if question.bucket else []), *question.by, *_CSV])
    for group in report.groups if question.by or question.bucket else [report.total]:
        start = [] if group.start is None else [_time(group.start)]
        cost = "" if group.cost_usd is None else f"{group.cost_usd:.9f}"
        writer.writerow(
            [
                *start,
                *group.group.values(),
                *_counts(group),
                group.estimated.input,
                group.estimated.output,
                cost,
                group.unpriced,
                group.saved.input,
                group.saved.output,
                f"{group.saved_usd:.9f}",
            ]
        )
    yield text.getvalue().rstrip("\n")
    if report.more:
        print(_more(question), file=sys.stderr)


def _table(report: UsageReport, question: _UsageQuery) -> Iterator[str]:
    until = "now" if question.until is None else _time(question.until)
    yield f"{_time(question.since)} to {until}, UTC"
    total = report.total
    if not total.attempts and not total.hits:
        yield "nothing was used"
        return
    yield ""
    groups = [*report.groups, total]
    names = [*(["start"] if question.bucket else []), *question.by]
    texts = [[name.upper() for name in names], *(_names(group) for group in report.groups)]
    texts.append(["TOTAL", *[""] * (len(names) - 1)] if names else [])
    costs = _money([group.cost_usd for group in groups], [group.unpriced for group in groups])
    saved = _money([group.saved_usd for group in groups], [0 for _ in groups])
    numbers = [
        [*(name.upper() for name in _COUNTS), "USD", "SAVED"],
        *(
            [*(f"{count:,}" for count in _counts(group)), cost, kept]
            for group, cost, kept in zip(groups, costs, saved, strict=True)
        ),
    ]
    yield from aligned([[*t, *n] for t, n in zip(texts, _to_the_right(numbers), strict=True)])
    yield from _notes(report, question)


def _notes(report: UsageReport, question: _UsageQuery) -> Iterator[str]:
    total = report.total
    if report.more:
        yield _more(question)
    if total.unpriced:
        yield (
            f"* {total.unpriced:,} of {total.attempts:,} attempts used tokens and have no price: "
            "what they cost is not in it (accounts.prices)"
        )
    if estimated := total.estimated.total:
        share = estimated / total.tokens.total
        yield f"{share:.1%} of the tokens are estimated: the endpoint did not report them"


def _more(question: _UsageQuery) -> str:
    return f"there are more than these {question.limit:,} groups (--limit); TOTAL is of all"


def _names(group: UsageTotals) -> list[str]:
    start = [] if group.start is None else [_time(group.start)]
    return start + [printable(value) or "-" for value in group.group.values()]


def _counts(group: UsageTotals) -> tuple[int, ...]:
    return group.requests, group.attempts, group.hits, *group.tokens


def _to_the_right(rows: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]


def _money(amounts: Sequence[float | None], unpriced: Sequence[int]) -> Iterator[str]:
    """Amounts with as many decimals as the largest of them leaves sense in; ``-`` for an unknown
    one, a star where there is more that is unknown.
    """
    largest = max((amount for amount in amounts if amount is not None), default=0.0)
    digits = 2 if largest >= 100 else 4 if largest >= 1 else 6
    starred = any(unpriced)
    for amount, unknown in zip(amounts, unpriced, strict=True):
        if amount is None:
            text = "-"
        elif 0 < amount < 10**-digits:
            text = f"<{10**-digits:.{digits}f}"
        else:
            text = f"{amount:,.{digits}f}"
        yield text + (("*" if unknown else " ") if starred else "")


def _time(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
