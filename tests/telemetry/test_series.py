"""Label sets are bounded, whatever comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from router.telemetry.meters import CountMeter
from router.telemetry.series import Cap, PolledMetric, Series


def values(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """Every sample of this name, by its label values."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def test_past_the_cap_what_varies_is_other() -> None:
    registry = CollectorRegistry()
    cap = Cap(registry, most=2)
    counter = CountMeter("c", "help", ("endpoint", "result"), registry)
    series = Series(counter, cap, fold=("endpoint",))
    for endpoint in ("a", "b", "c", "d", "a"):
        series[endpoint, "ok"].inc()
    series["e", "bad"].inc()
    assert values(registry, "c_total") == {
        ("a", "ok"): 2,
        ("b", "ok"): 1,
        ("other", "ok"): 2,
        ("other", "bad"): 1,
    }
    assert values(registry, "pointsman_series_folded_total") == {("c",): 3}


def test_the_same_child_every_time() -> None:
    registry = CollectorRegistry()
    counter = CountMeter("c", "help", ("model",), registry)
    series = Series(counter, Cap(registry, most=1), fold=("model",))
    assert series["m",] is series["m",]
    assert series.bounded("m") == ("m",)
    assert series.bounded("x") == ("other",)
    assert series["x",] is series["y",] is not series["m",]


@given(st.lists(st.tuples(st.text(max_size=3), st.sampled_from(["in", "out"]))))
def test_nothing_is_lost_and_nothing_grows(seen: list[tuple[str, str]]) -> None:
    registry = CollectorRegistry()
    counter = CountMeter("c", "help", ("model", "kind"), registry)
    series = Series(counter, Cap(registry, most=4), fold=("model",))
    for labels in seen:
        series[labels].inc()
    found = values(registry, "c_total")
    assert sum(found.values()) == len(seen)
    assert len(found) <= 4 + 2


def test_what_is_asked_for_is_asked_for_when_it_is_read() -> None:
    registry = CollectorRegistry()
    cap = Cap(registry, most=2)
    gauge = PolledMetric(registry, "gauge", "g", "Some help.", ("model",), cap)
    counter = PolledMetric(registry, "counter", "lost", "Some help.")
    assert values(registry, "g") == {}
    [family] = [f for f in registry.collect() if f.name == "g"]
    assert (family.type, family.documentation) == ("gauge", "Some help.")
    seen = [(("a",), 1.0), (("b",), 2.0)]
    gauge.values = lambda: seen
    counter.values = lambda: [((), 7.0)]
    assert values(registry, "g") == {("a",): 1, ("b",): 2}
    assert values(registry, "lost_total") == {(): 7}
    seen[1:] = [(("c",), 3.0), (("d",), 4.0)]
    assert values(registry, "g") == {("a",): 1, ("c",): 3}
    assert values(registry, "pointsman_series_folded_total")["g",] >= 1
