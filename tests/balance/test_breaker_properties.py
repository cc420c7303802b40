"""Whatever happens in whatever order, the breaker does what a slow and obvious one does."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import cycle
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from cache.breaker import Breaker, BreakerRules, BreakerState

FORGOTTEN = 1000
LONG = 2 * FORGOTTEN


class Model:
    """Remembers every result since it closed, and counts exactly.

    Times are whole half-lives, so that every weight is a power of two.
    """

    def __init__(self, rules: BreakerRules, random: Callable[[], float]) -> None:
        self.rules = rules
        self.random = random
        self.results: list[tuple[int, bool]] = []
        self.until: float | None = None
        self.probing = False
        self.openings: list[float] = []
        """How long it was open each time, since it was last well for long."""
        self.closed_at = 0

    def state(self, now: int) -> BreakerState:
        if self.until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.until else BreakerState.HALF_OPEN

    def report(self, now: int, ok: bool, probe: bool) -> bool:
        state = self.state(now)
        if state is BreakerState.CLOSED:
            self.results.append((now, ok))
            if ok or not self.too_many(now):
                return False
            self.open(now)
            return True
        if not probe:
            return False
        self.probing = False
        if ok:
            self.until, self.closed_at, self.results = None, now, []
            return True
        if state is BreakerState.HALF_OPEN:
            self.open(now)
        return state is BreakerState.HALF_OPEN

    def too_many(self, now: int) -> bool:
        newest = self.results[-self.rules.failures :]
        if len(newest) == self.rules.failures and not any(ok for _, ok in newest):
            return True
        weights = [
            (Fraction(1, 2 ** (now - at)), ok) for at, ok in self.results if now - at < FORGOTTEN
        ]
        total = sum(weight for weight, _ in weights)
        failed = sum(weight for weight, ok in weights if not ok)
        return total >= self.rules.min_requests and failed / total >= Fraction(self.rules.ratio)

    def open(self, now: int) -> None:
        if self.until is None and self.openings:
            needed = max(10 * self.openings[-1], 2 * self.rules.half_life)
            if now - self.closed_at >= needed:
                self.openings = []
        longest = self.rules.max_open_seconds
        full = min(self.rules.open_seconds * 2 ** len(self.openings), longest)
        self.openings.append(min(full * (0.75 + 0.5 * self.random()), longest))
        self.until = now + self.openings[-1]


RULES = st.builds(
    BreakerRules,
    failures=st.sampled_from([1, 2, 3, 100]),
    ratio=st.sampled_from([0.25, 0.5, 0.75, 1.0]),
    min_requests=st.sampled_from([1, 3, 4]),
    open_seconds=st.sampled_from([1.0, 2.0, 4.0]),
    max_open_seconds=st.sampled_from([1.0, 4.0, 5.0, 100.0]),
    half_life=st.just(1.0),
)
RANDOM = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75]), min_size=1, max_size=5)
STORY = {
    "some luck": ["ok", "failed", "ok", "failed"],
    "a row": ["failed"] * 3,
    "recovery": ["until", "begin", "probe ok"],
    "relapse": ["until", "begin", "probe failed"],
}
"""What several events make, so that there is much of what is interesting."""

EVENTS = st.lists(
    st.sampled_from(
        (
            *("ok", "failed", "wait", "until", "long", "trip", "begin", "abandon"),
            *("probe ok", "probe failed", *STORY, *STORY),
        )
    ).map(lambda name: STORY.get(name, [name])),
    min_size=8,
    max_size=20,
).map(lambda parts: [event for part in parts for event in part])


@settings(max_examples=500, deadline=None)
@given(RULES, RANDOM, EVENTS)
def test_it_is_the_obvious_one(rules: BreakerRules, draws: list[float], events: list[str]) -> None:
    one, other = cycle(draws), cycle(draws)
    subject, model = Breaker(rules, lambda: next(one)), Model(rules, lambda: next(other))
    now, running, opened = 0, False, 0
    for what in events:
        if what == "wait":
            now += 1
        elif what == "until":
            now = max(now, int(-(-subject.opens_until // 1)))
        elif what == "long":
            now += LONG
        elif what == "trip":
            if model.state(now) is not BreakerState.OPEN:
                model.open(now)
            subject.trip(now)
        elif what == "begin":
            allowed = subject.begin_probe()
            assert allowed == (not running and model.state(now) is not BreakerState.CLOSED)
            model.probing = running = running or allowed
        elif what == "abandon":
            subject.abandon_probe()
            model.probing = running = False
        else:
            probe = what.startswith("probe") and running
            report = subject.succeeded if what.endswith("ok") else subject.failed
            changed = report(now, probe=probe)
            assert changed == model.report(now, what.endswith("ok"), probe)
            opened += changed and subject.state(now) is BreakerState.OPEN
            running = running and not probe
        assert subject.state(now) is model.state(now)
        assert subject.opens_until == (model.until or 0.0)
        assert subject.probing == model.probing == running
    event(f"opened {min(opened, 6)} times")


STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 100.0),
        st.sampled_from(["ok", "failed", "trip", "begin", "abandon", "probe ok", "probe failed"]),
    ),
    max_size=60,
)
ANY_RULES = st.builds(
    BreakerRules,
    failures=st.integers(1, 5),
    ratio=st.floats(0.01, 1.0),
    min_requests=st.integers(1, 20),
    open_seconds=st.floats(0.01, 100.0),
    max_open_seconds=st.floats(0.01, 100.0),
    half_life=st.floats(0.1, 100.0),
)


def play(subject: Breaker, steps: list[tuple[float, str]], now: float = 0.0) -> float:
    """Let it happen; checks what holds at any moment, and returns the time at the end."""
    probes = 0
    for wait, what in steps:
        now += wait
        before, ended = subject.opens_until, False
        if what == "trip":
            subject.trip(now)
        elif what == "begin":
            probes += subject.begin_probe()
        elif what == "abandon":
            subject.abandon_probe()
            probes = 0
        else:
            ended = what.startswith("probe") and probes > 0
            report = subject.succeeded if what.endswith("ok") else subject.failed
            report(now, probe=ended)
            probes -= ended
        assert probes in (0, 1)
        assert 0.0 <= subject.failure_ratio(now) <= 1.0
        after = subject.opens_until
        assert after <= max(before, now + subject.rules.max_open_seconds)
        if before and not ended and what != "trip":
            assert after == before, "only its own probe moves it"
        if what == "trip":
            assert subject.state(now) is BreakerState.OPEN
    return now


@settings(max_examples=300, deadline=None)
@given(ANY_RULES, STEPS, ANY_RULES, STEPS, st.randoms(use_true_random=False))
def test_it_never_stays_open_too_long_and_never_probes_twice(
    first: BreakerRules,
    steps: list[tuple[float, str]],
    second: BreakerRules,
    more: list[tuple[float, str]],
    random: Random,
) -> None:
    subject = Breaker(first, random.random)
    now = play(subject, steps)
    subject.abandon_probe()
    subject.rules = second
    play(subject, more, now)


@settings(max_examples=300, deadline=None)
@given(ANY_RULES, STEPS, st.randoms(use_true_random=False))
def test_an_endpoint_that_is_well_again_is_used_again(
    rules: BreakerRules, steps: list[tuple[float, str]], random: Random
) -> None:
    """Whatever it went through: at most the longest time, then one probe, then all requests."""
    subject = Breaker(rules, random.random)
    now = play(subject, steps)
    deadline = now + rules.max_open_seconds
    if subject.state(now) is not BreakerState.CLOSED:
        now = max(now, subject.opens_until)
        assert now <= deadline
        assert subject.state(now) is BreakerState.HALF_OPEN
        assert subject.probing or subject.begin_probe()
        assert subject.succeeded(now, probe=True)
    for number in range(20):
        assert not subject.succeeded(now + number * rules.half_life / 7)
        assert subject.state(now) is BreakerState.CLOSED
        assert not subject.probing
