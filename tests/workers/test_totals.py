"""Metrics of several processes as those of one."""

from __future__ import annotations

import re

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from router.app import FLEET, create_app
from router.workers.totals import GAUGES, Totals, exposition, snapshot
from tests.support.router import endpoint, settings_for

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Process:
    """A process with metrics of each kind."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("requests", "Requests.", ("model",), registry=registry)
        self.seconds = Histogram("seconds", "Seconds.", buckets=(1, 5), registry=registry)
        self.open = Gauge("pointsman_requests_open", "Open.", registry=registry)
        self.up = Gauge("pointsman_endpoint_up", "Up.", ("endpoint",), registry=registry)
        self.runs = Gauge("pointsman_runs", "Runs.", ("state",), registry=registry)
        Info("build", "Build.", registry=registry).info({"version": "1"})

    def told(self, *, gauges: bool = True) -> list[list[object]]:
        """As it arrives at another process."""
        value: list[list[object]] = orjson.loads(
            orjson.dumps(snapshot(self.registry, gauges=gauges))
        )
        return value


def values(text: bytes) -> dict[str, float]:
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    pairs = [re.sub(r" # .*", "", line).rsplit(" ", 1) for line in lines]
    return {name: float(value) for name, value in pairs if "_created" not in name}


def test_each_kind_has_its_rule() -> None:
    one, two = Process(), Process()
    one.requests.labels("a").inc(2)
    two.requests.labels("a").inc(3)
    two.requests.labels("b").inc()
    for process, seconds in ((one, 0.5), (two, 3), (two, 9)):
        process.seconds.observe(seconds)
    for number, process in enumerate((one, two)):
        process.open.set(number + 1)
        process.up.labels("x").set(number)
        process.runs.labels("running").set(2)
        process.runs.labels("queued").set(7)
    body, kind = exposition([one.told(), two.told()], "")
    assert kind.startswith("text/plain")
    assert values(body) == {
        'requests_total{model="a"}': 5,
        'requests_total{model="b"}': 1,
        'seconds_bucket{le="1.0"}': 1,
        'seconds_bucket{le="5.0"}': 2,
        'seconds_bucket{le="+Inf"}': 3,
        "seconds_count": 3,
        "seconds_sum": 12.5,
        "pointsman_requests_open": 3,
        'pointsman_endpoint_up{endpoint="x"}': 0,
        'pointsman_runs{state="running"}': 4,
        'pointsman_runs{state="queued"}': 7,
        'build_info{version="1"}': 1,
    }


def test_of_a_process_that_has_ended_only_counts_are_left() -> None:
    ended, alive = Process(), Process()
    for process in (ended, alive):
        process.requests.labels("a").inc()
        process.open.set(1)
    totals = Totals()
    totals.add(ended.told(gauges=False))
    found = values(exposition([snapshot(totals), alive.told()], "")[0])
    assert found['requests_total{model="a"}'] == 2
    assert found["pointsman_requests_open"] == 1


def test_the_latest_exemplar_is_kept() -> None:
    one, two = Process(), Process()
    two.seconds.observe(0.2, {"trace_id": "late"})
    one.seconds.observe(0.1)
    for order in ([one, two], [two, one]):
        body, kind = exposition([process.told() for process in order], OPENMETRICS)
        assert kind.startswith("application/openmetrics-text")
        assert b'# {trace_id="late"} 0.2' in body
        assert body.endswith(b"# EOF\n")


def test_what_json_has_no_number_for_is_told() -> None:
    process = Process()
    process.open.set(float("inf"))
    assert values(exposition([process.told()], "")[0])["pointsman_requests_open"] == float("inf")


async def test_rules_are_about_metrics_that_there_are() -> None:
    app = create_app(settings_for(endpoint("http://127.0.0.1:9", "chat")))
    families = app[FLEET]._metrics.registry.collect()
    names = {family.name for family in families if family.type == "gauge"}
    assert {rule.split()[0] for rule in GAUGES} - names == set()
