"""What the metrics make of exchanges, however odd."""

from __future__ import annotations

from typing import Any

import pytest

from router.core.exchange import Exchange, Operation, Outcome
from router.core.usage_record import Spent
from router.telemetry.fleet_metrics import DeploymentGauges
from router.telemetry.metrics import Metrics
from tests.support.exchanges import an_exchange
from tests.telemetry.test_account_metrics import a_row


def ended(**fields: Any) -> Exchange:
    """It took two seconds at an endpoint."""
    known = {"started": 10.0, "endpoint": "one", "status": 200, "outcome": Outcome.OK, "model": "m"}
    return an_exchange(**{**known, "finished": 12.0, **fields})


def value(metrics: Metrics, name: str, **labels: str) -> float:
    """The sum of a metric over all label sets that have these labels."""
    return sum(
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"pointsman_{name}" and labels.items() <= sample.labels.items()
    )


def test_durations_are_seconds() -> None:
    metrics = Metrics("1")
    metrics.exchanges.ended(ended(first_output=10.5))
    assert value(metrics, "request_duration_seconds_sum") == 2.0
    assert value(metrics, "time_to_first_token_seconds_sum") == 0.5
    assert value(metrics, "request_duration_seconds_bucket", le="2.5") == 1
    assert value(metrics, "request_duration_seconds_bucket", le="1.0") == 0


def test_an_exchange_that_got_nowhere() -> None:
    metrics = Metrics("1")
    fields = {"endpoint": None, "finished": None, "outcome": None, "status": 0}
    metrics.exchanges.ended(ended(model=None, **fields))
    assert value(metrics, "requests_total", endpoint="", model="", outcome="failed") == 1


def test_the_time_between_tokens_is_that_of_the_whole_stream() -> None:
    metrics = Metrics("1")
    usage = {"output_tokens": 11}
    metrics.exchanges.ended(ended(first_output=11.0, usage=usage))
    assert value(metrics, "time_between_tokens_seconds_sum", endpoint="one", model="m") == 0.1
    for odd in (
        {"usage": {"output_tokens": 1}},
        {"usage": {"output_tokens": "many"}},
        {"usage": None},
        {"usage": usage, "endpoint": None},  # from the cache
        {"usage": usage, "outcome": Outcome.CANCELLED},
    ):
        metrics.exchanges.ended(ended(**{"first_output": 11.0, **odd}))
    assert value(metrics, "time_between_tokens_seconds_count") == 1


def spent(*attempts: tuple[float, float]) -> Spent:
    """What attempts came to that began and ended at these times, recorded in this order."""
    result = Spent()
    for began, ended in attempts:
        result.add(a_row(at=began, duration=ended - began))
    return result


@pytest.mark.parametrize(
    ("seconds", "attempts", "queue_seconds"),
    [
        (0.25, [(100.0, 101.75)], 0.0),
        (0.25, [(100.0, 101.25)], 0.5),
        (0.5, [(100.0, 100.5), (101.0, 102.0)], 0.0),  # a retry
        (0.5, [(100.0, 101.0), (100.5, 101.5)], 0.0),  # a hedge that won
        (0.5, [(100.0, 101.5), (100.5, 101.5)], 0.0),  # and one that did not
        (0.0, [(100.0, 103.0)], 0.0),
    ],
)
def test_overhead_is_what_was_spent_here(
    seconds: float, attempts: list[tuple[float, float]], queue_seconds: float
) -> None:
    metrics = Metrics("1")
    metrics.exchanges.ended(ended(spent=spent(*attempts), queue_seconds=queue_seconds))
    metrics.exchanges.ended(ended())  # no endpoint was asked
    assert value(metrics, "overhead_seconds_sum", operation="responses") == seconds
    assert value(metrics, "overhead_seconds_count") == 1


@pytest.mark.parametrize(
    ("phase", "fields"),
    [
        ("request", {"running": False}),
        ("waiting", {"running": True}),
        ("streaming", {"running": True, "first_output": 11.0}),
    ],
)
def test_clients_that_leave_are_counted_by_phase(phase: str, fields: dict[str, Any]) -> None:
    metrics = Metrics("1")
    metrics.exchanges.ended(ended(outcome=Outcome.CANCELLED, status=499, **fields))
    assert value(metrics, "client_disconnects_total", phase=phase, operation="responses") == 1
    assert value(metrics, "client_disconnects_total") == 1
    assert value(metrics, "errors_total") == 0


def test_a_run_that_is_cancelled_is_no_client_that_leaves() -> None:
    metrics = Metrics("1")
    metrics.exchanges.ended(ended(outcome=Outcome.CANCELLED, operation=Operation.RUN))
    assert value(metrics, "client_disconnects_total") == 0


def test_errors_have_a_fault_and_a_code() -> None:
    metrics = Metrics("1")
    fields = {"outcome": Outcome.FAILED, "status": 502, "attempts": 1}
    metrics.exchanges.ended(ended(error_code="upstream_error", **fields))
    metrics.exchanges.ended(ended(error_code="made up", **{**fields, "status": 400}))
    metrics.exchanges.ended(ended())
    labels = {"operation": "responses", "endpoint": "one"}
    assert value(metrics, "errors_total", fault="upstream", code="upstream_error", **labels) == 1
    assert value(metrics, "errors_total", fault="caller", code="other", **labels) == 1
    assert value(metrics, "errors_total") == 2


def exemplars(metrics: Metrics, name: str) -> list[str]:
    """The request ids that a scraper which asks for OpenMetrics gets for a histogram."""
    body, kind = metrics.exposition("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    lines = [line for line in body.decode().splitlines() if line.startswith(f"pointsman_{name}")]
    return [line.split('# {request_id="')[1].split('"')[0] for line in lines if " # {" in line]


def test_an_exemplar_leads_to_a_request_in_the_log_at_most_once_a_second() -> None:
    metrics = Metrics("1")
    for number, finished in enumerate((12.0, 12.5, 12.9, 13.0)):
        fields = {"started": finished - 0.002, "finished": finished, "id": f"req_{number}"}
        metrics.exchanges.ended(ended(first_output=finished - 0.001, **fields))
        shown = "req_3" if number == 3 else "req_0"
        assert exemplars(metrics, "request_duration_seconds_bucket") == [shown]
        assert exemplars(metrics, "time_to_first_token_seconds_bucket") == [shown]
    plain, _ = metrics.exposition("text/plain")
    assert b"req_" not in plain


def test_durations_reach_half_an_hour() -> None:
    metrics = Metrics("1")
    metrics.exchanges.ended(ended(finished=10.0 + 1799, first_output=10.0 + 1799))
    for name in ("request_duration", "time_to_first_token"):
        assert value(metrics, f"{name}_seconds_bucket", le="600.0") == 0
        assert value(metrics, f"{name}_seconds_bucket", le="1800.0") == 1


def test_models_as_labels_are_bounded_however_many_are_known() -> None:
    metrics = Metrics("1")
    metrics.fleet.in_flight = {("one", f"m{number}"): 1 for number in range(1500)}
    for number in range(1500):
        metrics.exchanges.ended(ended(model=f"m{number}"))
    families = [f for f in metrics.registry.collect() if f.name == "pointsman_requests"]
    (family,) = families
    totals = [s for s in family.samples if s.name.endswith("_total")]
    assert len(totals) <= 1001
    assert sum(sample.value for sample in totals) == 1500
    assert value(metrics, "requests_in_flight") == 1500
    assert value(metrics, "requests_in_flight", model="other") > 400
    assert value(metrics, "series_folded_total", metric="pointsman_requests") == 500
    assert value(metrics, "series_folded_total", metric="pointsman_requests_in_flight") >= 500


def test_what_is_in_flight_is_looked_at_when_it_is_asked_for() -> None:
    metrics = Metrics("1")
    fleet = metrics.fleet
    fleet.known_model = lambda model: model == "m"
    fleet.watch_deployments(lambda: [DeploymentGauges("two", "m", 4, "closed", None)])
    fleet.in_flight = {("one", "x"): 4, ("one", "y"): 2, ("one", "m"): 3}
    assert value(metrics, "requests_in_flight", endpoint="one", model="other") == 6
    assert value(metrics, "requests_in_flight", endpoint="one", model="m") == 3
    assert value(metrics, "requests_in_flight", endpoint="two", model="m") == 0
    fleet.in_flight = {}
    found = [family for family in metrics.registry.collect() if "in_flight" in family.name]
    assert [sample.labels["endpoint"] for sample in found[0].samples] == ["two"]


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
    metrics.fleet.attempts["one", result].inc()
    assert value(metrics, "upstream_attempts_total", endpoint="one", result=label) == 1
    assert value(metrics, "upstream_attempts_total") == 1
