"""From when to when: how people write it. Pure; days and months are those of UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

__all__ = ["TIMES", "moment", "month_start"]

TIMES: Final = 'a time ago like "7d", "24h" or "30m", a date, a time, or seconds since 1970'
"""What ``moment`` understands, for its errors."""

_AGO: Final = re.compile(r"([0-9]{1,6})([mhdw])")
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_UNIX: Final = re.compile(r"[0-9]{9,10}(\.[0-9]{1,9})?")
_LONGEST: Final = 40


def moment(text: str, now: float) -> float:
    """The time that ``text`` means, in Unix time; a date is its beginning, a time without a zone is
    UTC. Raises ValueError, whose text goes on after the name of what is wrong.
    """
    text = text.strip()
    if ago := _AGO.fullmatch(text):
        return max(0.0, now - int(ago[1]) * _SECONDS[ago[2]])
    if _UNIX.fullmatch(text):
        return float(text)
    try:
        found = datetime.fromisoformat(text[:_LONGEST])
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        seconds = found.timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"must be {TIMES}") from None
    if seconds < 0:
        raise ValueError("must not be before 1970")
    return seconds


def month_start(now: float) -> float:
    """When the month began."""
    today = datetime.fromtimestamp(now, UTC)
    return datetime(today.year, today.month, 1, tzinfo=UTC).timestamp()
