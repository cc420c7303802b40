"""Whose fault an error is."""

from __future__ import annotations

from typing import Any

import pytest

from router import errors
from router.core.exchange import Exchange, Outcome
from router.telemetry.exchange_metrics import code_of, fault_of
from tests.support.exchanges import an_exchange


def ended(outcome: Outcome | None, status: int, code: str | None, attempts: int = 0) -> Exchange:
    return an_exchange(outcome=outcome, status=status, error_code=code, attempts=attempts)


@pytest.mark.parametrize(
    ("fault", "error", "attempts"),
    [
        ("caller", errors.InvalidRequest("x"), 0),
        ("caller", errors.InvalidRequest("x", code="unknown_parameter"), 0),
        ("caller", errors.AuthenticationFailed("x"), 0),
        ("caller", errors.NotFound("x"), 0),
        ("caller", errors.ModelNotFound("x"), 0),
        ("caller", errors.MethodNotAllowed("x"), 0),
        ("caller", errors.Conflict("x"), 0),
        ("caller", errors.PayloadTooLarge("x"), 0),
        ("caller", errors.NotSupported("x"), 0),
        ("caller", errors.NotCached("x"), 0),
        ("caller", errors.UpstreamRejected("x", code="context_length_exceeded"), 1),
        ("policy", errors.Forbidden("x"), 0),
        ("policy", errors.RateLimitExceeded("x"), 0),
        ("policy", errors.QuotaExceeded("x"), 0),
        ("upstream", errors.UpstreamRateLimited("x"), 1),
        ("upstream", errors.UpstreamModelMissing("x"), 1),
        ("upstream", errors.UpstreamFailure("x"), 2),
        ("upstream", errors.UpstreamUnavailable("x"), 1),
        ("upstream", errors.ModelLoadFailed("x"), 0),
        ("upstream", errors.UpstreamTimeout("x"), 1),
        ("upstream", errors.UpstreamTooLong("x", begun=True), 1),
        ("router", errors.LimitsUnavailable("x"), 0),
        ("router", errors.Overloaded("x"), 0),
        ("router", errors.ShuttingDown("x"), 0),
        ("router", errors.StateUnavailable("x"), 0),
        ("router", errors.InternalError("x"), 1),
        ("router", errors.RouterError("x"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_every_error_has_a_fault(fault: str, error: errors.RouterError, attempts: int) -> None:
    outcome = Outcome.REFUSED if error.status < 500 else Outcome.FAILED
    assert fault_of(ended(outcome, error.status, error.code, attempts)) == fault


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("upstream", "server_error"),
        ("upstream", "rate_limit_exceeded"),
        ("upstream", "upstream_timeout"),
        ("caller", "invalid_prompt"),
        ("router", "internal_error"),
    ],
)
def test_streams_that_failed_midway(fault: str, code: str) -> None:
    assert fault_of(ended(Outcome.FAILED, 200, code, attempts=1)) == fault


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.CANCELLED, None])
def test_it_is_nobody_s_fault(outcome: Outcome | None) -> None:
    assert fault_of(ended(outcome, 200, None)) is None


def test_codes_are_a_closed_list() -> None:
    def code(given: Any) -> str:
        return code_of(ended(Outcome.FAILED, 500, given))

    assert code("upstream_error") == "upstream_error"
    assert code("insufficient_quota") == "insufficient_quota"
    assert code("server_error") == "server_error"
    assert code(None) == code("made_up") == code("req_123") == "other"
