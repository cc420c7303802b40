"""What the metrics make of exchanges, however odd."""

from __future__ import annotations

from typing import Any

import pytest

from router.exchange import Exchange, Operation, Outcome
from router.telemetry.metrics import Metrics


def an_exchange(**fields: Any) -> Exchange:
    exchange = Exchange(
        id="req_1", operation=Operation.RESPONSES, route="/", method="POST", headers={},
        remote=None, started=10.0,
    )  # fmt: skip
    exchange.endpoint = "one"
    exchange.status = 200
    exchange.outcome = Outcome.OK
    exchange.finished = 12.0
    for name, value in fields.items():
        setattr(exchange, name, value)
    return exchange


def value(metrics: Metrics, name: str, **labels: str) -> float:
    """The sum of a metric over all label sets that have these labels."""
    return sum(
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"switchyard_{name}" and labels.items() <= sample.labels.items()
    )


def test_durations_are_seconds() -> None:
    metrics = Metrics("1")
    metrics.record(an_exchange(first_output=10.5), "m")
    assert value(metrics, "request_duration_seconds_sum") == 2.0
    assert value(metrics, "time_to_first_token_seconds_sum") == 0.5
    assert value(metrics, "request_duration_seconds_bucket", le="2.5") == 1
    assert value(metrics, "request_duration_seconds_bucket", le="1.0") == 0


def test_every_kind_of_token() -> None:
    metrics = Metrics("1")
    usage: dict[str, Any] = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    metrics.record(an_exchange(usage=usage), "m")
    metrics.record(an_exchange(usage={**usage, "estimated": True}), "m")
    for provenance in ("reported", "estimated"):
        for kind, count in (("input", 10), ("cached", 4), ("output", 7), ("reasoning", 3)):
            found = value(metrics, "tokens_total", kind=kind, provenance=provenance, model="m")
            assert found == count


@pytest.mark.parametrize("odd", [None, -1, "5", 1.5, True, 10**30, [], {}])
def test_odd_numbers_of_an_endpoint_are_not_counted(odd: Any) -> None:
    metrics = Metrics("1")
    usage = {
        "input_tokens": odd,
        "output_tokens": 7,
        "input_tokens_details": odd,
        "output_tokens_details": {"reasoning_tokens": odd},
    }
    metrics.record(an_exchange(usage=usage), "m")
    assert value(metrics, "tokens_total") == 7
    assert value(metrics, "requests_total") == 1


def test_an_exchange_that_got_nowhere() -> None:
    metrics = Metrics("1")
    fields = {"endpoint": None, "finished": None, "outcome": None, "status": 0}
    metrics.record(an_exchange(**fields), "")
    assert value(metrics, "requests_total", endpoint="", model="", outcome="failed") == 1


def test_models_as_labels_are_bounded_however_many_are_known() -> None:
    metrics = Metrics("1")
    for number in range(1500):
        metrics.record(an_exchange(), f"m{number}")
        metrics.slots_changed(("one", f"m{number}"), 1, known=True)
    families = [f for f in metrics.registry.collect() if f.name == "switchyard_requests"]
    (family,) = families
    totals = [s for s in family.samples if s.name.endswith("_total")]
    assert len(totals) <= 1001
    assert sum(sample.value for sample in totals) == 1500
    assert value(metrics, "requests_in_flight") == 1500
    assert value(metrics, "requests_in_flight", model="other") > 400


def test_unknown_models_in_flight_are_added_up_and_leave_nothing_behind() -> None:
    metrics = Metrics("1")
    for number in range(5):
        metrics.slots_changed(("one", f"x{number}"), 1, known=False)
    metrics.slots_changed(("one", "x0"), 2, known=False)
    metrics.slots_changed(("one", "m"), 3, known=True)
    assert value(metrics, "requests_in_flight", model="other") == 6
    assert value(metrics, "requests_in_flight", model="m") == 3
    # A name may become known, or unknown, while it is in flight.
    for number in range(5):
        metrics.slots_changed(("one", f"x{number}"), 0, known=True)
    metrics.slots_changed(("one", "m"), 0, known=False)
    assert value(metrics, "requests_in_flight") == 0
    assert list(metrics._slots) == [("one", "m")]


def test_the_queue_is_looked_at_when_it_is_asked_for() -> None:
    metrics = Metrics("1")
    waiting = [3]
    metrics.fleet.queue_depth(lambda: waiting[0])
    assert value(metrics, "queue_depth") == 3
    waiting[0] = 1
    assert value(metrics, "queue_depth") == 1


@pytest.mark.parametrize(
    ("result", "label"),
    [
        ("ok", "ok"),
        ("upstream_timeout", "upstream_timeout"),
        ("rate_limit_exceeded", "rate_limit_exceeded"),
        ("made up", "rejected"),
        ("", "rejected"),
    ],
)
def test_results_of_attempts_are_a_closed_list(result: str, label: str) -> None:
    metrics = Metrics("1")
    metrics.fleet.attempts.labels("one", result).inc()
    assert value(metrics, "upstream_attempts_total", endpoint="one", result=label) == 1
    assert value(metrics, "upstream_attempts_total") == 1
