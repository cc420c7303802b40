"""What the metrics make of rows of the ledger."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from router.core.usage_record import NANO, Kind, Provenance, Tokens, UsageRecord
from router.telemetry.account_metrics import AccountMetrics
from router.telemetry.series import Cap

ATTEMPTS = [kind for kind in Kind if kind not in (Kind.CACHE, Kind.TOOL)]


def a_row(**fields: Any) -> UsageRecord:
    defaults: dict[str, Any] = {
        "id": "att_1", "at": 0.0, "request": "req_1", "key": "team-a", "tags": (),
        "operation": "responses", "kind": Kind.FIRST, "model": "small", "served": "m",
        "endpoint": "one", "tokens": Tokens(10, 4, 7, 3), "cost": NANO // 4, "duration": 1.0,
        "first_token": None, "outcome": "ok", "error": None, "provenance": Provenance.REPORTED,
        "response": None, "stream": False,
    }  # fmt: skip
    return UsageRecord(**{**defaults, **fields})


class Told:
    """Metrics on a registry of their own. ``now`` is their clock."""

    def __init__(self, most: int = 1000) -> None:
        self.registry = CollectorRegistry()
        self.now = 0.0
        cap = Cap(self.registry, most)
        self.metrics = AccountMetrics(self.registry, cap, clock=lambda: self.now)

    def value(self, name: str, **labels: str) -> float:
        """The sum over all label sets that have these labels."""
        return sum(
            sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == f"pointsman_{name}" and labels.items() <= sample.labels.items()
        )

    def series(self, name: str) -> int:
        """How many label sets a metric has."""
        return sum(
            sample.name == f"pointsman_{name}"
            for family in self.registry.collect()
            for sample in family.samples
        )


def test_an_attempt() -> None:
    told = Told()
    told.metrics.recorded(a_row())
    told.metrics.recorded(a_row(kind=Kind.RETRY, outcome="failed", tokens=Tokens(), cost=0))
    where = {"endpoint": "one", "model": "m", "provenance": "reported"}
    for kind, count in (("input", 10), ("cached", 4), ("output", 7), ("reasoning", 3)):
        assert told.value("tokens_total", kind=kind, **where) == count
    assert told.value("key_tokens_total", key="team-a", kind="input") == 10
    assert told.value("key_tokens_total") == 17
    assert told.value("cost_usd_total", endpoint="one", model="m", key="team-a") == 0.25
    assert told.value("attempts_total", endpoint="one", kind="first", outcome="ok") == 1
    assert told.value("attempts_total", endpoint="one", kind="retry", outcome="failed") == 1
    assert told.value("unpriced_attempts_total") == 0


def test_an_unknown_price_is_counted_and_no_cost_of_zero() -> None:
    told = Told()
    told.metrics.recorded(a_row(cost=None))
    told.metrics.recorded(a_row(cost=None, tokens=Tokens(), outcome="failed"))
    assert told.value("unpriced_attempts_total", endpoint="one", model="m") == 1
    assert told.series("cost_usd_total") == 0
    told.metrics.recorded(a_row(cost=0))
    assert told.series("cost_usd_total") == 1


def test_a_missing_price_counts_only_where_one_is_expected() -> None:
    told = Told()
    told.metrics.price_expected = lambda endpoint: endpoint == "one"
    told.metrics.recorded(a_row(cost=None, endpoint="box"))
    assert told.series("unpriced_attempts_total") == 0
    told.metrics.recorded(a_row(cost=None))
    assert told.value("unpriced_attempts_total", endpoint="one") == 1
    assert told.value("tokens_total", endpoint="box") == told.value("tokens_total", endpoint="one")


def test_an_answer_from_the_cache_is_money_saved_and_no_attempt() -> None:
    told = Told()
    told.metrics.saved("m", NANO // 4)
    assert told.value("cache_saved_usd_total", model="m") == 0.25
    for name in ("tokens_total", "key_tokens_total", "cost_usd_total", "attempts_total"):
        assert told.series(name) == 0
    assert told.value("unpriced_attempts_total") == 0


def test_models_that_nobody_lists_are_other() -> None:
    told = Told()
    told.metrics.known_model = lambda model: model == "m"
    told.metrics.recorded(a_row())
    told.metrics.recorded(a_row(served="any-17", cost=None))
    assert told.value("tokens_total", model="other") == told.value("tokens_total", model="m") > 0
    assert told.value("unpriced_attempts_total", model="other") == 1


@given(st.lists(st.tuples(st.sampled_from(ATTEMPTS), st.sampled_from(Provenance),
                          st.integers(0, 10**6), st.integers(0, 10**6),
                          st.none() | st.integers(0, NANO))))  # fmt: skip
def test_sums_agree_with_the_rows_to_the_token(
    drawn: list[tuple[Kind, Provenance, int, int, int | None]],
) -> None:
    told = Told(most=3)
    recorded = [
        a_row(kind=kind, provenance=prov, tokens=Tokens(i, 0, o, 0), cost=cost, key=f"k{n % 7}")
        for n, (kind, prov, i, o, cost) in enumerate(drawn)
    ]
    for row in recorded:
        told.metrics.recorded(row)
    total = sum(row.tokens.total for row in recorded)
    assert told.value("tokens_total") == told.value("key_tokens_total") == total
    assert abs(told.value("cost_usd_total") - sum(r.cost or 0 for r in recorded) / NANO) < 1e-6
    assert told.series("cost_usd_total") <= 4


def test_limits_that_are_hit() -> None:
    told = Told(most=2)
    for key in ("a", "b", "c", "d"):
        told.metrics.limit_hit(key, "requests_per_minute")
    told.metrics.limit_hit("a", "requests_per_minute")
    assert told.value("limits_hit_total", key="a", limit="requests_per_minute") == 2
    assert told.value("limits_hit_total", key="other") == 2
    assert told.value("series_folded_total", metric="pointsman_limits_hit") == 2


def test_a_budget_is_full_again_once_it_is_reset() -> None:
    told = Told()
    told.metrics.budget("team-a", "day", "usd", 0.2, resets=100.0)
    told.metrics.budget("tag:x", "total", "tokens", 0.5)
    name = "budget_left_ratio"
    assert told.value(name, owner="team-a", period="day", unit="usd") == 0.2
    told.metrics.budget("team-a", "day", "usd", 0.1, resets=100.0)
    assert told.value(name, owner="team-a") == 0.1
    told.now = 100.0
    assert told.value(name, owner="team-a") == 1.0
    assert told.value(name, owner="tag:x", period="total", unit="tokens") == 0.5


def test_budgets_are_bounded() -> None:
    told = Told(most=2)
    for number in range(5):
        told.metrics.budget(f"key-{number}", "day", "usd", 0.5)
    told.metrics.budget("key-0", "day", "usd", 0.25)
    assert told.series("budget_left_ratio") == 2
    assert told.value("budget_left_ratio") == 0.75
    assert told.value("series_folded_total", metric="pointsman_budget_left_ratio") == 3


def test_what_counts_limits_is_looked_at_when_it_is_asked_for() -> None:
    told = Told()
    assert told.series("limits_store_up") == told.series("limits_uncounted_total") == 0
    state = [1, 3, 4]
    told.metrics.watch_limits(lambda: bool(state[0]), lambda: state[1], lambda: state[2])
    assert told.value("limits_store_up") == 1
    state[:] = [0, 5, 6]
    assert told.value("limits_store_up") == 0
    assert told.value("limits_uncounted_total", away="store") == 5
    assert told.value("limits_uncounted_total", away="ledger") == 6


def test_the_ledger_is_looked_at_when_it_is_asked_for() -> None:
    told = Told()
    assert told.series("ledger_waiting_rows") == told.series("ledger_lost_rows_total") == 0
    state = [3, 1, 4096]
    told.metrics.watch_ledger(lambda: state[0], lambda: state[1], lambda: state[2])
    state[0] = 5
    assert told.value("ledger_waiting_rows") == 5
    assert told.value("ledger_lost_rows_total") == 1
    assert told.value("ledger_journal_bytes") == 4096
