"""Whatever happens in whatever order, no slot is lost, and nobody is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from random import Random
from typing import Any, TypeVar, get_args

import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from router.settings.schema import PolicyName
from tests.support.bustle import Attempt, Bustle, Change, Fleet, Job
from tests.support.clock import run_in_virtual_time

T = TypeVar("T")

ENDS = (
    "answered", "failed", "limited", "not_reached", "nothing", "refused", "answered_and_failed",
)  # fmt: skip
KINDS = ("drain", "undrain", "unreachable", "reachable", "unload", "load", "load_fails", "reload")
TURNS = range(3)
SLOTS = [
    tuple((name, slots) for name, slots in zip("abc", each, strict=True) if slots)
    for each in product(range(3), repeat=3)
    if any(each)
]


def any_of(make: Callable[..., T], **fields: Sequence[Any]) -> st.SearchStrategy[T]:
    """One of all that can be made of one value for each field.

    It is one number to Hypothesis, which takes much longer to draw many of them than all else here.
    """

    def made(number: int) -> T:
        chosen = {}
        for name, values in fields.items():
            number, index = divmod(number, len(values))
            chosen[name] = values[index]
        return make(**chosen)

    return st.integers(0, prod(map(len, fields.values())) - 1).map(made)


ATTEMPTS = [Attempt(*each) for each in product(range(4), ENDS, TURNS)]


def job(first: Attempt, second: Attempt, third: Attempt, number: int, **fields: Any) -> Job:
    return Job(attempts=(first, second, third)[:number], **fields)


JOBS = any_of(
    job,
    leaves_after=(None, None, None, 0, 1, 2, 3, 4),
    arrives=range(5),
    turns=TURNS,
    desperate=(True, False),
    caller="xy",
    first=ATTEMPTS,
    number=(1, 2, 3),
    second=ATTEMPTS,
    model="mmn",
    third=ATTEMPTS,
)
CHANGES = any_of(Change, at=range(9), kind=KINDS, where=range(6), turns=TURNS)
FLEETS = any_of(
    Fleet,
    slots=SLOTS,
    policy=get_args(PolicyName),
    queue_size=(9, 9, 2, 0),
    panic=(1.0, 0.5),
    moved=(False, True),
)


@settings(max_examples=3200, deadline=None)
@given(
    st.lists(JOBS, min_size=1, max_size=16),
    st.lists(CHANGES, max_size=10),
    st.lists(FLEETS, min_size=1, max_size=3),
)
def test_any_interleaving_ends_with_nothing_in_flight(
    jobs: Sequence[Job], changes: Sequence[Change], fleets: Sequence[Fleet]
) -> None:
    for each in (*jobs, *changes, *fleets):
        note(str(each))
    bustle = Bustle(fleets)
    with pytest.MonkeyPatch.context() as patch:
        # Breakers are open for whole seconds; everything else is left to chance that can be had
        # again.
        patch.setattr("router.endpoints.registry.random", lambda: 0.5)
        patch.setattr("router.endpoints.selector.random", Random(1).random)
        run_in_virtual_time(bustle.run(jobs, changes))
    for outcome in sorted(bustle.outcomes):
        event(outcome)
