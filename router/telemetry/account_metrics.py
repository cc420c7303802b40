"""What is told of what is written down: attempts as they are recorded, and the stored state.

``AccountMetrics`` (tokens, money, budgets, limits, the ledger) and the usage ledger are made of the
same rows, so that they agree to the token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge

from router.core.usage_record import NANO, UsageRecord
from router.telemetry.meters import CountMeter, CountValue, Spread, SpreadMeter
from router.telemetry.series import OTHER, Cap, PolledMetric, Series

__all__ = ["AccountMetrics", "OperationCounts", "StateMetrics"]

_FOLD: Final = ("endpoint", "model", "key")

_MOST_ALIKE: Final = 4096
"""So many sets of labels are remembered with what is counted of them."""

_Alike = tuple[str, str, str, str, str, str]
"""Endpoint, model, key, kind, outcome, provenance."""

_BudgetName = tuple[str, str, str]


class AccountMetrics:
    """The metrics of what is used, and of what may be.

    ``known_model`` says whether a name may be a label; until it is set, every name may.
    ``price_expected`` says, by an endpoint's name, whether its models are expected to have a price.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        cap: Cap | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        cap = cap or Cap(registry)
        self.known_model: Callable[[str], bool] = lambda model: True
        self.price_expected: Callable[[str], bool] = lambda endpoint: True

        def counter(name: str, help: str, *labels: str) -> Series[CountValue]:
            return Series(CountMeter(name, help, labels, registry), cap, fold=_FOLD)

        self._tokens = counter(
            "pointsman_tokens",
            "Tokens by kind (input, cached, output, reasoning); cached is part of input and "
            "reasoning part of output. Provenance: reported by the endpoint, or estimated.",
            "endpoint", "model", "kind", "provenance",
        )  # fmt: skip
        self._attempts = counter(
            "pointsman_attempts",
            "Attempts at endpoints as they are recorded, by why they were made (first, retry, "
            "fallback, hedge, turn, index) and how they ended (ok, refused, failed, cancelled).",
            "endpoint", "kind", "outcome",
        )  # fmt: skip
        self._key_tokens = counter(
            "pointsman_key_tokens",
            "Tokens of a key's requests by kind (input, output), retries and hedges included; "
            "answers from the cache are not.",
            "key", "kind",
        )  # fmt: skip
        self._cost = counter(
            "pointsman_cost_usd",
            "What attempts cost in US dollars, as far as prices are known. Calls of tools that the "
            "router ran have no endpoint, and the tool's name for a model.",
            "endpoint", "model", "key",
        )  # fmt: skip
        self._unpriced = counter(
            "pointsman_unpriced_attempts",
            "Attempts that used tokens for which no price is known: their cost is not in the sums. "
            "At endpoints on hosts of one's own with accounts.report_unpriced: all only.",
            "endpoint", "model",
        )  # fmt: skip
        self._saved = counter(
            "pointsman_cache_saved_usd",
            "What answers from the cache would have cost in US dollars, as far as prices are "
            "known.",
            "model",
        )  # fmt: skip
        self._limits = counter(
            "pointsman_limits_hit",
            "Requests that were refused because a key had used up a limit or a budget, by limit.",
            "key", "limit",
        )  # fmt: skip
        self._limits_up = PolledMetric(
            registry, "gauge", "pointsman_limits_store_up",
            "Whether what counts limits and budgets answers (1) or not (0).",
        )  # fmt: skip
        self._uncounted = PolledMetric(
            registry, "counter", "pointsman_limits_uncounted",
            "Requests that passed because of accounts.limits.on_down (fail_open), by what did not "
            "answer: store (counted nowhere), ledger (without regard to a budget).",
            ("away",),
        )  # fmt: skip
        self._budgets = _Budgets(registry, cap, clock)
        self._alike: dict[_Alike, _Counts] = {}
        self._waiting = PolledMetric(
            registry, "gauge", "pointsman_ledger_waiting_rows",
            "Rows of the usage ledger that are in the journal and not yet in the database.",
        )  # fmt: skip
        self._bytes = PolledMetric(
            registry, "gauge", "pointsman_ledger_journal_bytes",
            "The size of the usage ledger's journal.",
        )  # fmt: skip
        self._lost = PolledMetric(
            registry, "counter", "pointsman_ledger_lost_rows",
            "Rows of the usage ledger that could not be kept.",
        )  # fmt: skip

    def recorded(self, record: UsageRecord) -> None:
        """Count an attempt."""
        served, cost = record.served, record.cost
        alike = (
            record.endpoint,
            served if self.known_model(served) else OTHER,
            record.key,
            record.kind._value_,
            record.outcome,
            record.provenance._value_,
        )
        counts = self._alike.get(alike) or self._found(alike)
        counts["attempts"].value += 1
        if cost is not None:
            counts["cost"].value += cost / NANO
        inputs, cached, outputs, reasoning = record.tokens
        if inputs:
            counts["input"].value += inputs
            counts["key input"].value += inputs
        if cached:
            counts["cached"].value += cached
        if outputs:
            counts["output"].value += outputs
            counts["key output"].value += outputs
        if reasoning:
            counts["reasoning"].value += reasoning
        if cost is None and (inputs or outputs) and self.price_expected(record.endpoint):
            counts["unpriced"].value += 1

    def _found(self, alike: _Alike) -> _Counts:
        if len(self._alike) >= _MOST_ALIKE:
            self._alike.clear()
        counts = self._alike[alike] = _Counts(self._count, alike)
        return counts

    def _count(self, alike: _Alike, name: str) -> CountValue:
        """What is counted under this name of attempts like these."""
        endpoint, model, key, kind, outcome, provenance = alike
        if name == "attempts":
            return self._attempts[endpoint, kind, outcome]
        if name == "cost":
            return self._cost[endpoint, model, key]
        if name == "unpriced":
            return self._unpriced[endpoint, model]
        if name.startswith("key "):
            return self._key_tokens[key, name.removeprefix("key ")]
        return self._tokens[endpoint, model, name, provenance]

    def tool_paid(self, tool: str, key: str, cost: int) -> None:
        """Count what a call of a tool cost, in nano-USD: it has no endpoint, and no model."""
        self._cost["", tool, key].inc(cost / NANO)

    def saved(self, served: str, cost: int) -> None:
        """Count what an answer from the cache of this model would have cost, in nano-USD."""
        self._saved[served if self.known_model(served) else OTHER,].inc(cost / NANO)

    def limit_hit(self, key: str, limit: str) -> None:
        """A request of this key was refused; ``limit`` is a name out of few."""
        self._limits[key, limit].inc()

    def budget(
        self, owner: str, period: str, unit: str, left_ratio: float, resets: float | None = None
    ) -> None:
        """So much of a budget is left (0 to 1); all of it is again from ``resets`` on, which is in
        Unix time. ``owner`` is a key, or ``tag:NAME``.
        """
        self._budgets.note((owner, period, unit), left_ratio, resets)

    def watch_limits(
        self,
        up: Callable[[], bool],
        uncounted: Callable[[], float],
        unbudgeted: Callable[[], float],
    ) -> None:
        """These are asked whenever the metrics are: whether limits are counted; how many requests
        passed uncounted, and how many without regard to a budget, since the router began.
        """
        self._limits_up.values = lambda: [((), up())]
        self._uncounted.values = lambda: [(("store",), uncounted()), (("ledger",), unbudgeted())]

    def watch_ledger(
        self,
        waiting: Callable[[], float],
        lost: Callable[[], float],
        bytes: Callable[[], float],
    ) -> None:
        """These are asked whenever the metrics are: rows that wait and that were lost since the
        router began, and the size of the journal.
        """
        self._waiting.values = lambda: [((), waiting())]
        self._lost.values = lambda: [((), lost())]
        self._bytes.values = lambda: [((), bytes())]


class _Counts(dict[str, CountValue]):
    """What attempts that are alike in all labels count to, each found when it is first counted:
    what there was none of is not shown.
    """

    __slots__ = ("_alike", "_count")

    def __init__(self, count: Callable[[_Alike, str], CountValue], alike: _Alike) -> None:
        super().__init__()
        self._count = count
        self._alike = alike

    def __missing__(self, name: str) -> CountValue:
        count = self[name] = self._count(self._alike, name)
        return count


class _Budgets:
    """How much of each budget is left; those that nobody used for a whole period are full."""

    def __init__(self, registry: CollectorRegistry, cap: Cap, clock: Callable[[], float]) -> None:
        gauge = PolledMetric(
            registry, "gauge", "pointsman_budget_left_ratio",
            "The share of a budget that is left, of those that were used since the router began; "
            "the owner is a key, or tag:NAME.",
            ("owner", "period", "unit"),
        )  # fmt: skip
        gauge.values = self._all
        self._most = cap.most
        self._folded = cap.folded(gauge.name)
        self._clock = clock
        self._left: dict[_BudgetName, tuple[float, float | None]] = {}

    def note(self, name: _BudgetName, left: float, resets: float | None) -> None:
        if name not in self._left and len(self._left) >= self._most:
            self._folded.inc()
            return
        self._left[name] = (left, resets)

    def _all(self) -> Iterable[tuple[_BudgetName, float]]:
        now = self._clock()
        for name, (left, resets) in self._left.items():
            yield name, left if resets is None or now < resets else 1.0


_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
)  # fmt: skip


class OperationCounts(NamedTuple):
    """What reads, or writes, of the stored state are counted and timed with."""

    ok: CountValue
    failed: CountValue
    seconds: Spread


class StateMetrics:
    """What is told of the database of the stored state, and of background runs. ``reads`` and
    ``writes`` are for the database itself.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._up = Gauge(
            "pointsman_state_up",
            "Whether the database of the stored state answers (1) or not (0).",
            registry=registry,
        )
        operations = CountMeter(
            "pointsman_state_operations",
            "Reads and writes of the stored state, by kind and result (ok, failed).",
            ("kind", "result"),
            registry,
        )
        seconds = SpreadMeter(
            "pointsman_state_operation_seconds",
            "What a read, or a write until it was committed, took.",
            ("kind",),
            registry,
            bounds=_SECONDS,
        )
        self.reads, self.writes = [
            OperationCounts(
                operations.labels(kind, "ok"),
                operations.labels(kind, "failed"),
                seconds.labels(kind),
            )
            for kind in ("read", "write")
        ]
        self._runs = Gauge(
            "pointsman_runs",
            "Background runs: running in this process, queued in the database.",
            ("state",),
            registry=registry,
        )
        self._ended = Counter(
            "pointsman_runs_ended",
            "Background runs that were not ended by their own router's answer: requeued or failed "
            "(their router was gone, or drained), cancelled.",
            ("result",),
            registry=registry,
        )
        for result in ("requeued", "failed", "cancelled"):
            self._ended.labels(result)  # there from the start, so that a first one is a change

    def watch(
        self, up: Callable[[], bool], running: Callable[[], int], queued: Callable[[], int]
    ) -> None:
        """These are asked whenever the metrics are."""
        self._up.set_function(lambda: 1 if up() else 0)
        self._runs.labels("running").set_function(running)
        self._runs.labels("queued").set_function(queued)

    def run_ended(self, result: Literal["requeued", "failed", "cancelled"]) -> None:
        """A run was ended, or put back, by somebody else than its runner."""
        self._ended.labels(result).inc()
