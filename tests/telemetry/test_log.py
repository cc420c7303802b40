"""The log as a process writes it to standard error."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

ROOT = Path(__file__).parents[2]
_PROGRAM = """
from router.telemetry.log import configure, get_logger
log = get_logger("router.test")
configure({level!r}, {form!r})
{code}
"""


def logged(code: str, form: str = "json", level: str = "info") -> list[str]:
    """The lines that this code logs in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM.format(level=level, form=form, code=code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    return result.stderr.splitlines()


def test_a_json_line() -> None:
    began = datetime.now(UTC)
    (line,) = logged('log.warning("it happened", text="äöü\\n", number=5, other=(1, None))')
    found = orjson.loads(line)
    stamp = datetime.fromisoformat(found.pop("timestamp"))
    assert abs((stamp - began).total_seconds()) < 30
    assert found == {
        "event": "it happened",
        "component": "router.test",
        "level": "warning",
        "text": "äöü\n",
        "number": 5,
        "other": [1, None],
    }


def test_time_stamps_rise_and_have_one_form() -> None:
    lines = logged("for n in range(3000): log.info('x')")
    stamps = [orjson.loads(line)["timestamp"] for line in lines]
    assert stamps == sorted(stamps)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", stamp) for stamp in stamps)


def test_auto_is_json_where_nobody_watches() -> None:
    assert orjson.loads(logged('log.info("x")', "auto")[0])["event"] == "x"


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_levels(level: str, seen: list[str]) -> None:
    code = 'for name in ("debug", "info", "warning", "error"): getattr(log, name)(name)'
    assert [orjson.loads(line)["level"] for line in logged(code, level=level)] == seen


LEVELS = {"debug": 10, "info": 20, "warning": 30}

RAISE = """
prompt = "a secret prompt"
try:
    1 / 0
except ZeroDivisionError:
    log.exception("it broke")
"""


def test_an_exception_in_json_is_one_line() -> None:
    (line,) = logged(RAISE)
    found = orjson.loads(line)
    assert found["level"] == "error"
    assert found["exception"].endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize("form", ["json", "console"])
def test_an_exception_shows_no_local_variables(form: str) -> None:
    shown = "\n".join(logged(RAISE, form))
    assert "ZeroDivisionError" in shown
    assert "a secret prompt" not in shown


AGAIN = """
bound = log.bind(bound=True)
log.info("one")
bound.debug("unseen")
configure({level!r}, {form!r})
for name in ("debug", "info", "warning"):
    log.log({levels}[name], name)
    getattr(bound, name)(name)
"""


@pytest.mark.parametrize(
    ("level", "seen"),
    [("debug", ["debug", "info", "warning"]), ("warning", ["warning"]), ("error", [])],
)
def test_loggers_follow_a_new_configuration(level: str, seen: list[str]) -> None:
    code = AGAIN.format(level=level, form="json", levels=LEVELS)
    first, *rest = (orjson.loads(line) for line in logged(code))
    assert first["event"] == "one"
    assert [line["event"] for line in rest] == [event for event in seen for _ in range(2)]
    assert [line.get("bound", False) for line in rest] == [False, True] * len(seen)


def test_loggers_follow_a_new_form() -> None:
    lines = logged(AGAIN.format(level="info", form="console", levels=LEVELS))
    assert lines[0].startswith("{")
    assert len(lines) == 5
    assert not any(line.startswith("{") for line in lines[1:])


def test_console_lines_are_for_people_and_cannot_be_forged() -> None:
    lines = logged('log.info("it happened", model="m\\n[error] forged\\x1b[31m", n=5)', "console")
    assert len(lines) == 1
    assert "it happened" in lines[0]
    assert "n=5" in lines[0]
    assert "\x1b" not in lines[0]


def test_a_request_on_the_console_begins_with_what_people_look_for() -> None:
    code = """
access = get_logger("access")
fields = {"request_id": "r", "caller": "a b", "method": "GET", "route": "/v1/x", "status": 200}
access.info("request", **fields, ms=1.5, model="m 404\\n", endpoint="one", stream=False)
access.info("request", **fields, ms=0.0, limit=None)
"""
    first, second = (line.split(" ", 1) for line in logged(f"exec({code!r})", "console"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first[0])
    rest = " request_id=r caller='a b'"
    assert first[1] == "200 GET /v1/x 'm 404\\\\n' one 1.5 ms" + rest + " stream=False"
    assert second[1] == "200 GET /v1/x - - 0.0 ms" + rest


def test_what_cannot_be_written_as_json_is_shown_somehow() -> None:
    (line,) = logged('log.info("x", path=__import__("pathlib").Path("/etc"), keys={1: 2})')
    found = orjson.loads(line)
    assert "/etc" in found["path"]
    assert found["keys"] == {"1": 2}


def test_bytes_that_are_not_http_are_one_line() -> None:
    code = """
import logging
try:
    raise ValueError("Authorization: Bearer secret")
except ValueError:
    logging.getLogger("aiohttp.server").exception("Error handling request from 127.0.0.1")
"""
    (line,) = logged(code)
    found = orjson.loads(line)
    assert (found["component"], found["event"]) == ("aiohttp", "bad HTTP")
    assert found["error"] == "ValueError"
    assert "secret" not in line


def test_what_is_said_over_and_over_is_said_less_often() -> None:
    code = """
import time
now = 0.0
time.monotonic = lambda: now
for n in range(1000):
    log.warning("attempt failed", endpoint="one")
log.warning("attempt failed", endpoint="two")
log.info("attempt failed", endpoint="one")
now = 1.5
log.error("attempt failed", endpoint="one")
log.error("attempt failed", endpoint="one")
now = 100.0
log.warning("attempt failed", endpoint="one")
"""
    found = [orjson.loads(line) for line in logged(code)]
    assert [line["endpoint"] for line in found] == ["one"] * 20 + ["two"] + ["one"] * 3
    assert [line.get("dropped") for line in found] == [None] * 22 + [980, 1]


def test_only_so_many_different_ones_are_remembered() -> None:
    code = """
from router.telemetry import log as module
damper = module._Damper()
for n in range(5000):
    damper(None, "error", {"event": f"number {n}", "component": "x"})
assert len(damper._said) == 1000
"""
    assert logged(code) == []
