"""Counters and histograms of plain numbers look like those of the library, to the byte."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client import metrics as library
from prometheus_client.exposition import choose_encoder

from router.telemetry.meters import CountMeter, SpreadMeter

BOUNDS = (0.1, 1, 2.5)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Both:
    """The same metrics, ours and the library's, each on a registry of its own."""

    def __init__(self) -> None:
        self.ours, self.theirs = CollectorRegistry(), CollectorRegistry()
        self.count = CountMeter("asked", "Some help.", ("who", "how"), self.ours)
        self.spread = SpreadMeter("took", "More help.", ("who",), self.ours, bounds=BOUNDS)
        self.lone = CountMeter("lone", "No labels.", (), self.ours).labels()
        self.counter = Counter("asked", "Some help.", ("who", "how"), registry=self.theirs)
        self.histogram = Histogram(
            "took", "More help.", ("who",), buckets=BOUNDS, registry=self.theirs
        )
        self.lone_counter = Counter("lone", "No labels.", registry=self.theirs)

    def shown(self, accept: str) -> tuple[str, str]:
        encode, _ = choose_encoder(accept)
        return encode(self.ours).decode(), encode(self.theirs).decode()


@pytest.fixture(autouse=True)
def _one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.25)


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
@pytest.mark.parametrize("created", [True, False])
def test_they_are_shown_alike(
    accept: str, monkeypatch: pytest.MonkeyPatch, *, created: bool
) -> None:
    both = Both()
    for labels, amount in ((("a", "x"), 1), (('b"\n', "y"), 2.5)):
        both.count.labels(*labels).inc(amount)
        both.counter.labels(*labels).inc(amount)
    both.lone.inc(3)
    both.lone_counter.inc(3)
    for value, request in ((0.1, "req_1"), (0.100001, None), (1, None), (7.0, "req_2"), (0, None)):
        both.spread.labels("a").observe(value, request)
        example = None if request is None else {"request_id": request}
        both.histogram.labels("a").observe(value, example)
    with monkeypatch.context() as patched:
        patched.setattr(library, "_use_created", created)
        ours, theirs = both.shown(accept)
    assert ours == theirs
    assert ("_created" in ours) == created


@given(st.lists(st.floats(-10, 10)))
def test_every_value_is_in_its_bucket(values: list[float]) -> None:
    both = Both()
    for value in values:
        both.spread.labels("a").observe(value)
        both.histogram.labels("a").observe(value)
    if not values:
        both.spread.labels("a")
        both.histogram.labels("a")
    ours, theirs = both.shown("text/plain")
    assert ours == theirs


def test_labels_have_to_be_all_there() -> None:
    with pytest.raises(ValueError, match="asked"):
        Both().count.labels("a")


def test_a_name_is_there_once() -> None:
    both = Both()
    with pytest.raises(ValueError, match="Duplicated"):
        Counter("asked", "Again.", registry=both.ours)
