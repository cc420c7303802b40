"""So much per minute, and so much at once: pure, time is handed in.

What a limit counts is a ``LimitRule``: requests or tokens per minute, or requests under way, of a
key altogether or of a key for the models of one pattern. Those per minute are token buckets: a
whole minute's worth may come at once, and then it comes back evenly. A bucket's ``used`` is how
much of that is missing; it runs down to 0.0 within a minute, unless more was used than was allowed.

Over any time, what is counted is at most one minute's worth and what comes back in that time. What
a request may come to is counted when it begins, and the difference to what it used when it ends:
so what is given back after a long request may be used at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Final, Literal, NamedTuple

from router.core.key import Key, KeyLimits
from router.errors import RateLimitExceeded
from router.settings.model_names import fits

__all__ = [
    "HAIR",
    "Level",
    "LimitHeadings",
    "LimitRule",
    "OverLimit",
    "What",
    "amount_of",
    "duration",
    "limit_headers",
    "most_tokens",
    "over_limit",
    "remaining",
    "rules_of",
    "wait_of",
]  # fmt: skip

HAIR: Final = 1e-6
"""What sums of fractions may be wrong by; far less than one request or token."""

_MINUTE: Final = 60.0

What = Literal["requests", "tokens", "concurrent"]

_NAMES: Final[Mapping[What, str]] = {
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    "concurrent": "concurrent",
}


class LimitRule(NamedTuple):
    """One limit. ``id`` names what it counts and stays when the limit changes; ``pattern`` is that
    of its models, None for all of them together.
    """

    id: str
    what: What
    most: int
    owner: str
    pattern: str | None


class OverLimit(RateLimitExceeded):
    """A limit refused. ``which`` is what it counts: requests, tokens, or concurrent requests."""

    which: What = "requests"


@dataclass(slots=True)
class Level:
    """How much of a minute's worth is missing: ``used``, as it was ``at`` that time (seconds)."""

    used: float = 0.0
    at: float = 0.0

    def now(self, now: float, most: int) -> float:
        """How much is missing by now, where ``most`` comes back in a minute."""
        passed = now - self.at
        left = self.used - passed * most / _MINUTE if passed > 0.0 else self.used
        return left if left > 0.0 else 0.0

    def add(self, now: float, most: int, amount: float) -> float:
        """Take ``amount``, whether it is there or not, or give it back (negative); what is
        missing then.
        """
        return self.put(now, self.now(now, most) + amount)

    def put(self, now: float, used: float) -> float:
        """So much is missing then: nothing, where it is negative."""
        self.at = now
        self.used = used if used > 0.0 else 0.0
        return self.used


def rules_of(key: Key, model: str) -> tuple[LimitRule, ...]:
    """What limits a request of this key for this model."""
    rules = _rules(key, key.limits, None)
    for pattern, limits in key.model_limits:
        if fits(model, pattern):
            rules += _rules(key, limits, pattern)
    return rules


def _rules(key: Key, limits: KeyLimits, pattern: str | None) -> tuple[LimitRule, ...]:
    mosts: tuple[tuple[What, int | None], ...] = (
        ("requests", limits.requests_per_minute),
        ("tokens", limits.tokens_per_minute),
        ("concurrent", limits.concurrent),
    )
    # No name has a space in it: a key's own limits are never taken for those of a pattern.
    named = key.name if pattern is None else f"{key.name} {pattern}"
    return tuple(
        LimitRule(f"{what}:{named}", what, most, key.name, pattern)
        for what, most in mosts
        if most is not None
    )


def amount_of(rule: LimitRule, tokens: int) -> int:
    """What a request that may come to so many tokens takes of it."""
    return tokens if rule.what == "tokens" else 1


def most_tokens(rules: Sequence[LimitRule]) -> int | None:
    """The most tokens that any one request can get; None is any number."""
    return min((rule.most for rule in rules if rule.what == "tokens"), default=None)


def wait_of(rule: LimitRule, used: float, amount: float) -> float:
    """Seconds until ``amount`` passes: 0.0 when it does now, infinity when it never will.

    How long requests are under way is not known: for those it is a guess of one second.
    """
    if amount > rule.most:
        return inf
    missing = used + amount - rule.most
    if missing <= HAIR:
        return 0.0
    return 1.0 if rule.what == "concurrent" else missing * _MINUTE / rule.most


def remaining(rule: LimitRule, used: float) -> int:
    """How much may come at once."""
    return max(0, floor(rule.most - used + HAIR))


def over_limit(rules: Sequence[LimitRule], used: Sequence[float], tokens: int) -> OverLimit | None:
    """Why a request that may come to so many tokens is refused; None where it may pass.

    ``used`` is how much of each rule is missing, or how many requests are under way. Of several
    that refuse, that is named which does so the longest.
    """
    longest, rule, left = 0.0, None, 0.0
    for one, missing in zip(rules, used, strict=True):
        wait = wait_of(one, missing, amount_of(one, tokens))
        if wait > longest:
            longest, rule, left = wait, one, missing
    if rule is None:
        return None
    headers = limit_headers(rules, used)
    if longest == inf:
        headers["x-should-retry"] = "false"
        message = (
            f"The request may come to {tokens} tokens, and {_whose(rule)} at most {rule.most} per "
            "minute: it would never pass. Send less, or set a lower maximum of output tokens."
        )
    else:
        seconds = max(1, ceil(longest - HAIR))
        headers["Retry-After"] = str(seconds)
        message = _message(rule, left, tokens, seconds)
    error = OverLimit(message, headers=headers)
    error.which = rule.what
    name = _NAMES[rule.what]
    error.limit = name if rule.pattern is None else f"{name} {rule.pattern}"
    return error


def _message(rule: LimitRule, used: float, tokens: int, seconds: int) -> str:
    if rule.what == "concurrent":
        return (
            f"Too many requests at once: {_whose(rule)} at most {rule.most} under way, and "
            f"{round(used)} are."
        )
    again = f"Try again in {seconds} s."
    if rule.what == "requests":
        return f"Too many requests: {_whose(rule)} at most {rule.most} per minute. {again}"
    return (
        f"Too many tokens: {_whose(rule)} at most {rule.most} per minute, of which "
        f"{remaining(rule, used)} are left, and the request may come to {tokens}. {again}"
    )


def _whose(rule: LimitRule) -> str:
    models = "" if rule.pattern is None else f" for models '{rule.pattern}'"
    return f"key '{rule.owner}'{models} may have"


def limit_headers(rules: Sequence[LimitRule], used: Sequence[float]) -> dict[str, str]:
    """OpenAI's ``x-ratelimit-*``, each kind of the rule that leaves the least."""
    tightest: dict[What, tuple[int, float, int]] = {}
    for rule, missing in zip(rules, used, strict=True):
        what = rule.what
        if what == "concurrent":
            continue
        most = rule.most
        standing = (remaining(rule, missing), -missing * _MINUTE / most, most)
        if what not in tightest or standing < tightest[what]:
            tightest[what] = standing
    headers = {}
    for what, (left, full, most) in tightest.items():
        limit, rest, reset = _HEADERS[what]
        headers[limit] = str(most)
        headers[rest] = str(left)
        headers[reset] = duration(-full)
    return headers


class LimitHeadings:
    """``limit_headers`` of the same rules over and over: what never changes is written once."""

    __slots__ = ("_parts", "_rules")

    def __init__(self, rules: Sequence[LimitRule]) -> None:
        self._rules = rules
        limited = [(place, one) for place, one in enumerate(rules) if one.what != "concurrent"]
        self._parts: list[tuple[int, int, str, str, str, str]] | None = [
            (place, one.most, str(one.most), *_HEADERS[one.what]) for place, one in limited
        ]
        if len({one.what for _, one in limited}) < len(limited):
            self._parts = None  # which one leaves the least changes

    def at(self, used: Sequence[float]) -> dict[str, str]:
        """The headers where so much of each rule is missing."""
        if self._parts is None:
            return limit_headers(self._rules, used)
        headers = {}
        for place, most, limit, named, rest, reset in self._parts:
            missing = used[place]
            headers[named] = limit
            headers[rest] = str(int(most - missing + HAIR)) if missing < most else "0"
            headers[reset] = duration(missing * _MINUTE / most)
        return headers


_HEADERS: Final[Mapping[What, tuple[str, str, str]]] = {
    what: (
        f"x-ratelimit-limit-{what}",
        f"x-ratelimit-remaining-{what}",
        f"x-ratelimit-reset-{what}",
    )
    for what in ("requests", "tokens")
}
_UNITS: Final[Mapping[str, int]] = {"h": 3_600_000, "m": 60_000}


def duration(seconds: float) -> str:
    """In OpenAI's form, rounded up to milliseconds: ``6m0s``, ``1.5s``, ``20ms``, ``0s``."""
    left = max(0, ceil(seconds * 1000 - HAIR))
    if 0 < left < 1000:
        return f"{left}ms"
    text = ""
    for unit, size in _UNITS.items():
        if left >= size or text:
            text += f"{left // size}{unit}"
            left %= size
    return f"{text}{left / 1000:.3f}".rstrip("0").rstrip(".") + "s"
