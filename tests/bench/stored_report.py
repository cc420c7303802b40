"""What the tables say of stored responses, and the targets. Pure."""

from __future__ import annotations

from typing import Final

from .report import Goal, Row

__all__ = ["DATABASES", "STORED_GOALS", "STORED_ROWS"]

DATABASES: Final = ("sqlite", "postgresql")

_CASES: Final = (
    ("non-stream, 64 at once", "whole64"),
    ("non-stream, one at a time", "whole1"),
    ("stream, 64 at once", "stream64"),
    ("stream, one at a time", "stream1"),
)
_GROWN: Final = (
    ("store, 64 at once", "add64"),
    ("store, one at a time", "add1"),
    ("retrieve, 64 at once", "get64"),
    ("retrieve, one at a time", "get1"),
    ("a turn after 20", "turn1"),
)


def _rows() -> tuple[Row, ...]:
    rows: list[Row] = []
    for title, case in _CASES:
        rows += [
            (title, "CPU us, store: false", f"unstored_{case}_us", False),
            ("", "CPU us, store: true", f"stored_{case}_us", False),
            ("", "  x store: false", f"stored_{case}_x", False),
        ]
    for turns in (1, 20, 200):
        rows += [
            (f"a turn after {turns}", "ms, chain read", f"chain{turns}_read_ms", False),
            ("", "ms added to the request", f"chain{turns}_added_ms", False),
            ("", "CPU us/request", f"chain{turns}_us", False),
        ]
    rows.append(("each turn more, 1 to 20", "CPU us", "chain_start_us", False))
    rows.append(("each turn more, 20 to 200", "CPU us", "chain_growth_us", False))
    for title, case in (("100 paced streams", "paced"), ("32 streams, no pace", "unpaced")):
        rows += [
            (title, "CPU us/event, foreground", f"foreground_{case}_us", False),
            ("", "CPU us/event, background", f"background_{case}_us", False),
            ("", "  x foreground", f"background_{case}_x", False),
        ]
    for title, case in _GROWN:
        rows += [
            (f"{title}, large", "CPU us/request", f"large_{case}_cpu_us", False),
            ("", "  x small", f"large_{case}_cpu_us_x", False),
            ("", "ms, p50", f"large_{case}_ms", False),
            ("", "  x small", f"large_{case}_ms_x", False),
        ]
    rows.append(("on disk, small", "MiB", "small_mib", False))
    rows.append(("on disk, large", "MiB", "large_mib", False))
    return tuple(rows)


STORED_ROWS: Final = _rows()


def _goals() -> tuple[Goal, ...]:
    goals = []
    for stop, limit in (("", 2.0), (", second stop", 1.6), (", summit", 1.3)):
        title = f"stored, CPU per request{stop}"
        goals.append(Goal(title, "sqlite", "stored_whole64_x", limit, "x store: false"))
    for database in DATABASES:
        goals.append(Goal("chain of 200 turns read", database, "chain200_read_ms", 20.0, "ms"))
        for title, case in _GROWN:
            name = f"large_{case}_cpu_us_x"
            goals.append(Goal(f"CPU, {title}, large", database, name, 1.25, "x small"))
    return tuple(goals)


STORED_GOALS: Final = _goals()
