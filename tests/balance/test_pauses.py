"""For how long an endpoint is left alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.balance.pauses import LIMIT_FIELDS, asked_pause, stated_pause

NOW = datetime(2025, 3, 1, 12, 0, 0, tzinfo=UTC)
SOON = "2025-03-01T12:00:20Z"


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("99999999", 3600.0),
        ("inf", 3600.0),
        ("-5", 0.0),
        ("Sat, 01 Mar 2025 12:00:30 GMT", 30.0),
        ("Saturday, 01-Mar-25 12:00:30 GMT", 30.0),
        ("Sat, 01 Mar 2025 13:01:00 +0100", 60.0),
        ("Sat, 01 Mar 2025 11:00:00 GMT", 0.0),
        ("Sat, 01 Mar 2036 12:00:00 GMT", 3600.0),
        (None, 5.0),
        ("", 5.0),
        ("nan", 5.0),
        ("soon", 5.0),
        ("Sat, 01 Mar 2025 12:00:30 -0000", 5.0),
        ("Sat, 99 Mar 2025 12:00:30 GMT", 5.0),
        ("Sat, 01 Mar 2025 12:00:30 +9999999999999", 5.0),
    ],
    ids=str,
)
def test_how_long_a_rate_limit_is_respected(after: str | None, seconds: float) -> None:
    headers = {} if after is None else {"Retry-After": after}
    assert asked_pause(headers, NOW) == seconds


@given(st.text(max_size=50) | st.from_regex(r"[0-9A-Za-z ,:.+]{1,40}", fullmatch=True))
def test_no_header_makes_a_pause_that_is_none(after: str) -> None:
    assert 0.0 <= asked_pause({"Retry-After": after}, NOW) <= 3600.0


def anthropic(what: str, left: str, reset: str = SOON) -> dict[str, str]:
    name = f"anthropic-ratelimit-{what}"
    return {f"{name}-limit": "50", f"{name}-remaining": left, f"{name}-reset": reset}


def openai(what: str, left: str, reset: str, limit: str = "500") -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{what}": limit,
        f"x-ratelimit-remaining-{what}": left,
        f"x-ratelimit-reset-{what}": reset,
    }


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        *((anthropic(what, "0"), 20.0) for what in ("requests", "tokens")),
        *((anthropic(what, "0"), 20.0) for what in ("input-tokens", "output-tokens")),
        (anthropic("requests", "1"), 0.0),
        (anthropic("requests", "0", "2025-03-01T13:00:30+01:00"), 30.0),
        (anthropic("requests", "0", "2025-03-01T11:59:00Z"), 0.0),
        (anthropic("requests", "0", "2025-03-01T12:00:20"), 0.0),  # of which zone?
        (anthropic("requests", "0", "2026-03-01T12:00:20Z"), 60.0),
        ({**anthropic("requests", "0"), **anthropic("tokens", "0", "2025-03-01T12:00:40Z")}, 40.0),
        ({**anthropic("requests", "7"), **anthropic("tokens", "0")}, 20.0),
        (openai("requests", "0", "1s"), 1.0),
        (openai("tokens", "0", "120ms"), 0.12),
        (openai("tokens", " 0 ", " 6.5s "), 6.5),
        (openai("tokens", "0", "12"), 12.0),
        (openai("requests", "0", "1m3s"), 60.0),
        (openai("requests", "0", "2m59.56s"), 60.0),
        (openai("requests", "0", "1d2h3m4s5ms"), 60.0),
        (openai("requests", "0", "23h59m"), 60.0),
        (openai("requests", "3", "1m"), 0.0),
        (openai("requests", "0", "0s"), 0.0),
        (openai("requests", "0", ""), 0.0),
        (openai("requests", "0", "soon"), 0.0),
        (openai("requests", "0, 0", "1s, 1s"), 0.0),
        (openai("requests", "-1", "1s"), 0.0),
        (openai("tokens", "0", "30s", limit="0"), 0.0),  # there is no such limit
        ({"x-ratelimit-remaining-tokens": "0"}, 0.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "3s"}, 3.0),
        ({}, 0.0),
    ],
    ids=str,
)
def test_when_a_limit_is_back(headers: dict[str, str], seconds: float) -> None:
    assert stated_pause(headers, NOW) == pytest.approx(seconds)


@given(st.text(max_size=40) | st.from_regex(r"[0-9dhms.:TZ+-]{1,40}", fullmatch=True))
def test_no_header_makes_a_rest_that_is_none(reset: str) -> None:
    assert 0.0 <= stated_pause(openai("requests", "0", reset), NOW) <= 60.0


def test_the_headers_to_look_for() -> None:
    assert b"anthropic-ratelimit-input-tokens-remaining" in LIMIT_FIELDS
    assert b"x-ratelimit-remaining-tokens" in LIMIT_FIELDS
    assert len(LIMIT_FIELDS) == 6
