"""``pointsman usage`` as it is used: what a user reads, a machine parses, and mistakes."""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from router.cli import usage as cli_usage
from router.core.usage_record import Kind, Provenance, Tokens, UsageRecord
from router.settings.schema import Settings
from router.state.database import StateError
from tests.support.router import settings_for
from tests.support.state import database_url, opened
from tests.support.usage import recorded, row

__all__ = ["database_url"]

DAY = 86400.0


def run(settings: Settings, *options: str) -> int:
    parser = argparse.ArgumentParser()
    cli_usage.add_arguments(parser)
    return cli_usage.run(settings, parser.parse_args(["--config", "x.yaml", *options]))


def settings_at(url: str) -> Settings:
    endpoint = {"name": "a", "url": "http://127.0.0.1:1", "dialect": "ollama"}
    return settings_for(endpoint, state={"url": url})


def fill(url: str, rows: Sequence[UsageRecord]) -> Settings:
    async def fill() -> None:
        async with opened(url) as database:
            await recorded(database, *rows)

    asyncio.run(fill())
    return settings_at(url)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


@pytest.fixture
def filled(url: str) -> Settings:
    """Usage of two keys on the 1st and 2nd of January, 2026."""
    at = 1_767_225_600.0
    dear: dict[str, Any] = {"cost": 12_500_000_000, "tokens": Tokens(120_000, 2_000, 3_000, 500)}
    return fill(
        url,
        [
            row(at=at, model="big", tags=("a", "b"), **dear),
            row(at=at + DAY, model="big", kind=Kind.RETRY, **dear),
            row(at=at, model="small", key="bob", cost=30_000, provenance=Provenance.ESTIMATED),
            row(at=at, model="own", key="bob", cost=None, endpoint="two"),
            row(at=at, model="big", kind=Kind.CACHE, provenance=Provenance.CACHED, **dear),
        ],
    )


ALWAYS = ("--since", "2026-01-01")


def test_the_table(filled: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(filled, *ALWAYS, "--until", "2026-02-01") == 0
    assert capsys.readouterr().out == (
        "2026-01-01 00:00 to 2026-02-01 00:00, UTC\n"
        "\n"
        "KEY    MODEL  REQUESTS  ATTEMPTS  HITS    INPUT  CACHED  OUTPUT  REASONING"
        "       USD    SAVED\n"
        "ann    big           2         2     1  240,000   4,000   6,000      1,000"
        "  25.0000   12.5000\n"
        "bob    small         1         1     0       10       2       5          1"
        "  <0.0001    0.0000\n"
        "bob    own           1         1     0       10       2       5          1"
        "        -*   0.0000\n"
        "TOTAL                4         4     1  240,020   4,004   6,010      1,002"
        "  25.0000*  12.5000\n"
        "* 1 of 4 attempts used tokens and have no price: what they cost is not in it "
        "(accounts.prices)\n"
        "0.0% of the tokens are estimated: the endpoint did not report them\n"
    )


def test_by_time_and_of_one_key(filled: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(filled, *ALWAYS, "--by", "endpoint", "--bucket", "day", "--key", "ann") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:4] for line in lines[3:]] == [
        ["2026-01-01", "00:00", "one", "2"],
        ["2026-01-02", "00:00", "one", "0"],
        ["TOTAL", "2", "2", "1"],
    ]
    assert "*" not in "".join(lines[-1])


def test_by_tag(filled: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(filled, *ALWAYS, "--by", "tag", "--format", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert {one["tag"]: one["cost_usd"] for one in shown["data"]} == {
        "a": 12.5,
        "b": 12.5,
        "": 12.50003,
    }
    assert shown["total"]["cost_usd"] == 25.00003


def test_json(filled: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(filled, *ALWAYS, "--by", "model", "--model", "own", "--format", "json") == 0
    own = {
        "requests": 1,
        "attempts": 1,
        "hits": 0,
        "tokens": {
            "input": 10,
            "cached": 2,
            "output": 5,
            "reasoning": 1,
            "reported": {"input": 10, "cached": 2, "output": 5, "reasoning": 1},
            "estimated": {"input": 0, "cached": 0, "output": 0, "reasoning": 0},
        },
        "cost_usd": None,
        "unpriced": 1,
        "saved_tokens": {"input": 0, "cached": 0, "output": 0, "reasoning": 0},
        "saved_usd": 0.0,
    }
    assert json.loads(capsys.readouterr().out) == {
        "since": 1_767_225_600.0,
        "until": None,
        "bucket": None,
        "by": ["model"],
        "data": [{"model": "own", **own}],
        "total": own,
        "has_more": False,
    }


def test_csv(filled: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(filled, *ALWAYS, "--bucket", "day", "--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(one["start"], one["key"], one["model"], one["cost_usd"]) for one in rows] == [
        ("2026-01-01 00:00", "ann", "big", "12.500000000"),
        ("2026-01-01 00:00", "bob", "small", "0.000030000"),
        ("2026-01-01 00:00", "bob", "own", ""),
        ("2026-01-02 00:00", "ann", "big", "12.500000000"),
    ]
    assert (rows[0]["saved_input"], rows[0]["saved_usd"]) == ("120000", "12.500000000")
    assert (rows[1]["estimated_input"], rows[1]["unpriced"]) == ("10", "0")
    assert run(filled, *ALWAYS, "--by", "", "--format", "csv") == 0
    [total] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (total["attempts"], total["unpriced"]) == ("4", "1")


def test_more_than_are_shown(filled: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(filled, *ALWAYS, "--limit", "1") == 0
    assert "more than these 1 groups" in capsys.readouterr().out
    assert run(filled, *ALWAYS, "--limit", "1", "--format", "csv") == 0
    ended = capsys.readouterr()
    assert len(ended.out.splitlines()) == 2
    assert "more than these 1 groups" in ended.err


def test_the_last_days(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    now = time.time()
    settings = fill(url, [row(at=now - 6 * DAY), row(at=now - 8 * DAY), row(at=now)])
    assert run(settings, "--by", "") == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["2", "2"]
    assert run(settings, "--by", "", "--since", "24h") == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["1", "1"]


def test_on_both_databases(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = fill(database_url, [row(at=1e9)])
    assert run(settings, "--since", "2001-01-01", "--format", "csv") == 0
    assert (
        capsys.readouterr().out.splitlines()[1].startswith("ann,m,1,1,0,10,2,5,1,0,0,0.000001500")
    )


@pytest.mark.parametrize("format", ["table", "json", "csv"])
def test_before_the_first_start(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    assert run(settings_at(url), "--format", format) == 0
    out = capsys.readouterr().out
    assert ("nothing was used" in out) is (format == "table")
    assert list(tmp_path.iterdir()) == []


def test_a_database_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StateError, match="memory"):
        run(settings_at("sqlite:///:memory:"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--by", "key,colour"), "--by: 'colour' is none of key, tag"),
        (("--since", "yesterday"), "--since: must be a time ago"),
        (("--until", "soon"), "--until: must be a time ago"),
        (("--since", "1d", "--until", "2d"), "--until: must be after --since"),
    ],
)
def test_mistakes(
    url: str, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    assert run(settings_at(url), *options) == 2
    ended = capsys.readouterr()
    assert ended.out == ""
    assert ended.err.startswith(f"pointsman usage: {words}")


@pytest.mark.parametrize("limit", ["0", "x", "-1", "10001", "\u0661"])
def test_a_limit_that_is_none(url: str, capsys: pytest.CaptureFixture[str], limit: str) -> None:
    with pytest.raises(SystemExit):
        run(settings_at(url), f"--limit={limit}")
    assert "must be a number from 1 to 10000" in capsys.readouterr().err


def test_nothing_that_a_terminal_obeys(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = fill(url, [row(at=1e9, model="\x1b[31m")])
    assert run(settings, "--since", "2001-01-01") == 0
    assert "?[31m" in capsys.readouterr().out
