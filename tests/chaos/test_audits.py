"""The audits find what is broken, and nothing where nothing is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.audit import audit_requests
from tests.chaos.faults import Fault
from tests.chaos.records import Arrival, Episode, Evidence, Limits, Record, Reload
from tests.chaos.spread import audit_traffic, probes_allowed

LIMITS = Limits(
    connect=1.0, first_byte=1.0, idle=2.0, total=5.0, queue_timeout=5.0, max_attempts=3,
    open_seconds=1.0, max_open_seconds=2.0, slow_start=3.0,
)  # fmt: skip
BOXES = ("one", "two", "three")
BEGAN, ENDED = 10.0, 15.0
PER_SECOND = 120
SECONDS = 25

STALL = Fault("stall")
FLAKY = Fault("error", share=0.3)
LIMIT = Fault("limit", model="m", retry_after=4)

Break = Callable[[Evidence], object]


def evidence(fault: Fault | None = STALL) -> Evidence:
    """Everything as it should be: ``two`` is sick for a while.

    Requests come one after the other, to one endpoint after the other. The sick one gets a probe
    of each model per second, and its traffic comes back within ``slow_start``.
    """
    found = Evidence(LIMITS, BOXES, began=0.0, ended=float(SECONDS))
    found.episodes.append(Episode("two", fault, BEGAN, ENDED, ENDED))
    for number in range(SECONDS * PER_SECOND):
        at = number / PER_SECOND
        model = "m" if number % 4 else "n"
        box = BOXES[(number + number // 4) % 3]
        if number % PER_SECOND < 2 and BEGAN <= at <= ENDED:
            box = "two" if fault is not None or at == ENDED else "one"
        elif box == "two" and not _takes_part(number, at):
            box = "one"
        how = "whole"
        if fault is not None and box == "two" and BEGAN <= at < ENDED:
            (how,) = fault.traces if fault.model in (None, model) else ("whole",)
            if fault.kind == "limit" and model == "m" and at >= BEGAN + 1:
                box, how = "one", "whole"
        record = Record(number, "responses", True, model, at, None, at + 0.1, at + 0.5, 200, "ok")
        record.endpoint, record.attempts = box, 1
        found.records.append(record)
        found.arrivals.append(Arrival(box, at, model, number, at + 0.5, how))
    if fault is None:
        cut(found)
    return found


def _takes_part(number: int, at: float) -> bool:
    """Whether ``two`` gets a request whose turn it is: all, none, or more and more of them."""
    return at < BEGAN or (at - ENDED) / LIMITS.slow_start > number * 37 % 100 / 100


def during(found: Evidence, seconds: float, number: int = 0) -> Record:
    """The record of a request that began so long after the sickness."""
    return found.records[int((BEGAN + seconds) * PER_SECOND) + number]


def cut(found: Evidence, *, late: float = 0.1, box: str = "two") -> None:
    """A stream that began before the sickness is cut off, so late after that."""
    record = during(found, -0.2)
    record.outcome, record.endpoint, record.ended = "cut", box, BEGAN + late


def arrive(found: Evidence, box: str, at: float, count: int, model: str = "m") -> None:
    """So many requests for this backend, a millisecond apart, each of which takes two."""
    times = [at + number / 1000 for number in range(count)]
    found.arrivals += [Arrival(box, at, model, None, at + 0.002, "left") for at in times]
    found.arrivals.sort(key=lambda arrival: arrival.at)


def move(found: Evidence, began: float, ended: float, to: str) -> None:
    """Whatever came to ``two``, or else to the others, in that time came ``to`` somebody else."""
    for arrival in found.arrivals:
        if began <= arrival.at < ended and (arrival.box == "two") == (to != "two"):
            arrival.box = to


def change(found: Evidence, seconds: float, **fields: object) -> None:
    """One request went otherwise."""
    record = during(found, seconds)
    for name, value in fields.items():
        setattr(record, name, value)


def reloaded(found: Evidence, *, asked_at: float) -> None:
    """``extra`` comes at 2 and goes at 6 seconds."""
    found.reloads += [Reload(2.0, frozenset({*BOXES, "extra"})), Reload(6.0, frozenset(BOXES))]
    request = int(asked_at * PER_SECOND)
    found.arrivals.append(Arrival("extra", asked_at, "m", request, asked_at, "whole"))
    found.arrivals.sort(key=lambda arrival: arrival.at)


def pay(found: Evidence) -> None:
    """Many requests took two attempts, long after the endpoint had died."""
    for number in range(40):
        during(found, 2.5, number).attempts = 2


def all_sick(found: Evidence) -> None:
    """The others are sick as well, and a request is refused."""
    found.episodes += [Episode(box, STALL, BEGAN, ENDED, ENDED) for box in ("one", "three")]
    change(found, 1.0, outcome="refused")


@pytest.mark.parametrize("fault", [STALL, None, FLAKY, LIMIT], ids=str)
def test_nothing_is_broken(fault: Fault | None) -> None:
    found = evidence(fault)
    assert [*audit_requests(found), *audit_traffic(found)] == []


REQUESTS: dict[str, tuple[Break, str]] = {
    "refused": (lambda e: change(e, 1.0, outcome="refused"), "one, three had room"),
    "lost": (lambda e: change(e, 1.0, outcome="lost"), "lost"),
    "mute": (lambda e: change(e, 1.0, outcome="mute"), "mute"),
    "hung": (lambda e: change(e, 1.0, outcome="hung"), "hung"),
    "late": (lambda e: change(e, 1.0, ended=BEGAN + 50.0), "past its deadline"),
    "silent": (lambda e: change(e, 1.0, silence=20.0), "silent for 20.00 s"),
    "wrong": (lambda e: change(e, 1.0, faults=["the text is ''"]), "the text is ''"),
    "cut elsewhere": (lambda e: cut(e, box="one"), "nothing has cut it off"),
    "told late": (lambda e: cut(e, late=5.0), "5.00 s after two (killed) died"),
    "untold": (lambda e: change(e, 1.0, endpoint=""), "is not told"),
    "left over": (lambda e: e.left.append("a slot"), "a slot"),
    "asked twice": (lambda e: e.arrivals.append(e.arrivals[0]), "request 0 came to one 2 times"),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_a_promise_to_a_client(what: str) -> None:
    breaks, said = REQUESTS[what]
    found = evidence(None)
    breaks(found)
    (violation,) = audit_requests(found)
    assert said in violation


def test_where_nobody_is_well_a_refusal_is_fine() -> None:
    found = evidence()
    all_sick(found)
    assert audit_requests(found) == []


TRAFFIC: dict[str, tuple[Fault | None, Break, str]] = {
    "not alone": (STALL, lambda e: arrive(e, "two", 13.0, 5), "got 8 requests where 4"),
    "two probes": (
        STALL,
        lambda e: arrive(e, "two", 13.5, 1),
        "2 probes at the same time",
    ),
    "paid for": (None, pay, "40 requests came to others by way of it, 8 may"),
    "unused": (STALL, lambda e: move(e, 9.0, 10.0, "one"), "no traffic before"),
    "unfelt": (STALL, lambda e: move(e, 10.0, 15.0, "one"), "felt by nobody"),
    "nothing cut": (None, lambda e: change(e, -0.2, outcome="ok"), "nothing was cut"),
    "busy": (FLAKY, lambda e: move(e, 12.0, 15.0, "two"), "got 100% of the traffic"),
    "gone": (STALL, lambda e: move(e, 15.0, 25.0, "one"), "got no requests"),
    "late": (STALL, lambda e: move(e, 15.0, 20.5, "one"), "s after it was well again"),
    "at once": (STALL, lambda e: move(e, 15.0, 16.0, "two"), "100% of the requests at once"),
    "too little": (STALL, lambda e: move(e, 18.0, 25.0, "one"), "got 0% of the requests"),
    "forgotten": (
        STALL,
        lambda e: move(e, 17.0, 18.5, "one"),
        "was left alone although it was well again",
    ),
    "no pause": (LIMIT, lambda e: arrive(e, "two", 12.0, 3), "requests for m in its pause"),
    "all pause": (LIMIT, lambda e: move(e, 10.1, 15.0, "one"), "none for the other model"),
    "stranger": (STALL, lambda e: reloaded(e, asked_at=8.0), "extra was asked 2.00 s after"),
    "shunned": (
        STALL,
        lambda e: e.reloads.append(Reload(2.0, frozenset({*BOXES, "extra"}))),
        "extra came with a reload, and was never asked",
    ),
}


@pytest.mark.parametrize("what", TRAFFIC)
def test_a_promise_about_the_traffic(what: str) -> None:
    fault, breaks, said = TRAFFIC[what]
    found = evidence(fault)
    breaks(found)
    assert any(said in violation for violation in audit_traffic(found)), audit_traffic(found)


def test_an_endpoint_that_comes_and_goes() -> None:
    found = evidence()
    reloaded(found, asked_at=4.0)
    assert audit_traffic(found) == []


@pytest.mark.parametrize(
    ("seconds", "allowed"), [(0.0, 1), (0.7, 1), (0.8, 2), (2.2, 2), (2.3, 3), (5.0, 4)]
)
def test_probes_are_rarer_and_rarer(seconds: float, allowed: int) -> None:
    assert probes_allowed(seconds, LIMITS) == allowed
