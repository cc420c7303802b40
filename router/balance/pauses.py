"""For how long an endpoint is to be left alone, by what its answers say: ``Retry-After``, and what
is left of its rate limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = ["LIMIT_FIELDS", "asked_pause", "stated_pause"]

_PAUSE: Final = 5.0
"""Seconds for which a rate limit without a ``Retry-After`` is respected."""

_LONGEST_PAUSE: Final = 3600.0

_LONGEST_REST: Final = 60.0
"""Seconds: what is left of a limit is a forecast, that of a minute mostly. That of a day comes back
bit by bit, long before all of it is there again.
"""

_ANTHROPIC: Final = ("requests", "tokens", "input-tokens", "output-tokens")
_OPENAI: Final = ("requests", "tokens")

_KINDS: Final = (
    *(
        tuple(f"anthropic-ratelimit-{what}-{part}" for part in ("limit", "remaining", "reset"))
        for what in _ANTHROPIC
    ),
    *(
        tuple(f"x-ratelimit-{part}-{what}" for part in ("limit", "remaining", "reset"))
        for what in _OPENAI
    ),
)
"""The headers of each limit: how much it is, what is left of it, and when all of it is back."""

LIMIT_FIELDS: Final = frozenset(left.encode() for _, left, _ in _KINDS)
"""The names, in lower case, of the headers that say what is left of a limit."""

_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{1,9})?")
_DURATION: Final = re.compile(
    r"(?=\d)(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?"
    r"(?:(\d{1,6}(?:\.\d{1,9})?)s)?(?:(\d{1,9}(?:\.\d{1,9})?)ms)?"
)
"""As OpenAI and Groq write it: ``6m0s``, ``2m59.56s``, ``120ms``."""
_SECONDS: Final = (86_400.0, 3600.0, 60.0, 1.0, 0.001)


def asked_pause(headers: Mapping[str, str], now: datetime) -> float:
    """The seconds that a refusal's ``Retry-After`` asks for: a number of them, or a date (RFC 9110,
    10.2.3). ``now`` is in UTC.
    """
    after = headers.get("Retry-After", "")
    try:
        seconds = float(after)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(after) - now).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return _PAUSE
    return min(max(seconds, 0.0), _LONGEST_PAUSE) if seconds == seconds else _PAUSE


def stated_pause(headers: Mapping[str, str], now: datetime) -> float:
    """The seconds, at most a minute, until an endpoint that has no requests or tokens left has them
    again: by Anthropic's ``anthropic-ratelimit-*`` or OpenAI's ``x-ratelimit-*``. Zero: it has
    some, or does not say. ``now`` is in UTC.
    """
    longest = 0.0
    for limit, left, reset in _KINDS:
        # A limit of nothing is none.
        if _is_zero(headers.get(left)) and not _is_zero(headers.get(limit)):
            longest = max(longest, _until(headers.get(reset, "").strip(), now))
    return min(longest, _LONGEST_REST)


def _is_zero(value: str | None) -> bool:
    return value is not None and _NUMBER.fullmatch(value.strip()) is not None and not float(value)


def _until(reset: str, now: datetime) -> float:
    """The seconds until a limit is back: told as a number of them, a duration, or a time (RFC
    3339). Zero for what is neither, or is over.
    """
    if _NUMBER.fullmatch(reset):
        return float(reset)
    if (parts := _DURATION.fullmatch(reset)) is not None:
        told = zip(parts.groups(), _SECONDS, strict=True)
        return sum(float(part) * unit for part, unit in told if part is not None)
    try:
        return max(0.0, (datetime.fromisoformat(reset) - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0
