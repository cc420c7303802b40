"""Lines that are written some at a time look like all others, and are not lost at the end."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from structlog.testing import capture_logs

from router.telemetry.line_log import LineLog
from tests.telemetry.test_log import logged

FIELDS = '{"a": "äöü\\n", "n": 5, "x": None, "other": (1, None), "thing": range(2), "half": 0.5}'
BOTH = """
from router.telemetry.line_log import LineLog
import asyncio
fields = FIELDS
lines = LineLog("router.test", "said")
BEFORE
async def main():
    log.info("said", **fields)
    lines.write(lambda: fields)
    AFTER
asyncio.run(main())
"""


def both(form: str = "json", level: str = "info", *, after: str, before: str = "") -> list[str]:
    """A line by a logger and one by a line log, with the same fields."""
    code = BOTH.replace("FIELDS", FIELDS).replace("BEFORE", before).replace("AFTER", after)
    return logged(f"exec({code!r}, globals())", form, level)


@pytest.mark.parametrize("after", ["lines.flush()", "await asyncio.sleep(0.2)"])
def test_a_line_looks_like_any_other(after: str) -> None:
    theirs, ours = map(orjson.loads, both(after=after))
    assert list(ours) == list(theirs)
    assert ours.pop("timestamp") >= theirs.pop("timestamp")
    assert ours == theirs


def test_many_do_not_wait() -> None:
    lines = both(after="[lines.write(lambda: fields) for _ in range(200)]; import os; os._exit(0)")
    assert 1 + 201 - 64 <= len(lines) <= 1 + 201
    assert {tuple(orjson.loads(line)) for line in lines[1:]} == {tuple(orjson.loads(lines[0]))}


def test_a_line_that_cannot_be_made_does_not_take_others_with_it() -> None:
    after = "lines.write(lambda: 1 / 0); lines.write(lambda: fields); lines.flush()"
    _, broken, *good = map(orjson.loads, both(after=after))
    assert (broken["event"], broken["level"]) == ("a line cannot be made", "error")
    assert [line["event"] for line in good] == ["said", "said"]


def test_without_a_loop_it_is_written_at_once() -> None:
    lines = both(before="lines.write(lambda: fields); import os; os._exit(0)", after="pass")
    assert len(lines) == 1


def test_a_level_that_is_dropped_is_dropped() -> None:
    assert both(level="warning", after="lines.flush()") == []


def test_a_console_has_it_at_once() -> None:
    code = (
        "from router.telemetry.line_log import LineLog\n"
        "LineLog('router.test', 'said').write(lambda: {'n': 5})"
    )
    [line] = logged(f"exec({code!r})", "console")
    assert "said" in line
    assert "n=5" in line


async def test_who_listens_to_the_log_hears_it() -> None:
    with capture_logs() as log:
        LineLog("router.test", "said").write(lambda: {"n": 5})
        await asyncio.sleep(0)
    assert [(one["event"], one["component"], one["n"]) for one in log] == [
        ("said", "router.test", 5)
    ]
