"""The choice of an endpoint: least loaded, able, and fair."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from router.balance.policy import Candidate, least_loaded

candidates = st.lists(
    st.builds(
        Candidate,
        key=st.integers(),
        in_flight=st.integers(0, 6),
        limit=st.integers(1, 5),
        weight=st.floats(0.1, 10),
        answers=st.booleans(),
    ),
    max_size=8,
)


@given(candidates, st.randoms(use_true_random=False))
def test_the_choice_is_free_and_nobody_better_was_there(
    given: list[Candidate[int]], random: Random
) -> None:
    best = least_loaded(given, random.random)
    free = [candidate for candidate in given if candidate.in_flight < candidate.limit]
    if best is None:
        assert free == []
        return
    assert best in free
    answering = [candidate for candidate in free if candidate.answers]
    rivals = answering or free
    assert best in rivals
    least = min(rival.in_flight / rival.weight for rival in rivals)
    assert best.in_flight / best.weight == least


@given(candidates)
def test_the_order_of_the_candidates_does_not_matter(given: list[Candidate[int]]) -> None:
    first = least_loaded(given, lambda: 0.5)
    last = least_loaded(reversed(given), lambda: 0.5)
    assert (first is None) == (last is None)
    if first is not None and last is not None:
        assert (first.answers, first.load) == (last.answers, last.load)


def test_ties_are_spread_evenly() -> None:
    tied = [Candidate(name, 1, 4, 1.0, True) for name in "abcd"]
    random = Random(1)
    chosen: Counter[str] = Counter()
    for _ in range(4000):
        best = least_loaded(tied, random.random)
        assert best is not None
        chosen[best.key] += 1
    assert set(chosen) == set("abcd")
    assert all(900 < count < 1100 for count in chosen.values())


def test_weight_scales_the_load() -> None:
    """Three times the weight carries three times the requests, up to the limits."""
    in_flight = {"small": 0, "large": 0}
    random = Random(1)
    for _ in range(40):
        best = least_loaded(
            [
                Candidate("small", in_flight["small"], 99, 1.0, True),
                Candidate("large", in_flight["large"], 99, 3.0, True),
            ],
            random.random,
        )
        assert best is not None
        in_flight[best.key] += 1
    assert in_flight == {"small": 10, "large": 30}


def test_nobody_is_nobody() -> None:
    assert least_loaded([], lambda: 0.0) is None
    assert least_loaded([Candidate("a", 1, 1, 1.0, True)], lambda: 0.0) is None
