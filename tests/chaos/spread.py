"""Holds the evidence to what was promised of the traffic.

Who is sick is left alone but for probes, who is well again gets its traffic back step by step, and
an endpoint that a reload has taken away is asked no more. Breakers are for one model each; for the
less busy ones there is too little traffic to be judged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from math import sqrt
from typing import Final

from tests.chaos.faults import Fault
from tests.chaos.records import Arrival, Episode, Evidence, Limits
from tests.chaos.upstream import BUSY, MODELS

__all__ = ["NOTICED", "audit_traffic", "probes_allowed"]

NOTICED: Final = 2.0
"""Seconds within which sickness is noticed: from then on there are only probes."""

_LEAST_JITTER: Final = 0.75
"""A breaker stays open for at least so much of its time."""

_FLAKY_SHARE: Final = 0.5
"""So much of what is due to an endpoint may come to one that fails now and then."""

_EARLY, _LATE = (0.0, 0.2), (1.2, 2.2)
"""Parts of the time after the return that are compared, in terms of ``slow_start``."""

_DEVIATIONS: Final = 1.5
"""So many standard deviations may be chance."""

_EARLY_SHARE: Final = 0.75
"""Of its late share, an endpoint gets at most so much early."""

_LATE_SHARE: Final = 0.3
"""So much of what is due to an endpoint comes to it again: conversations that went to another one
stay there, and a share of two seconds wavers by more than chance.
"""

_RETURN_SLACK: Final = 2.0
"""Seconds, beside those of a breaker, that may pass until somebody tries."""

_MISSED, _GAP = 50, 1.2
"""An endpoint that misses so many requests in a row, in so many seconds, is left alone."""

_ENOUGH: Final = 20
"""Arrivals, of which there have to be so many for a share to mean anything."""

_LET_GO: Final = 1.0
"""Seconds that a reload may take."""


def audit_traffic(evidence: Evidence) -> list[str]:
    """Every promise about the traffic that was broken."""
    found: list[str] = []
    for episode in evidence.episodes:
        found += _was_felt(episode, evidence)
        fault = episode.fault
        if fault is None or fault.constant:
            found += _left_alone(episode, evidence)
            found += _came_back(episode, evidence)
        elif fault.kind == "limit":
            found += _cooled(episode, fault, evidence)
        elif fault.kind != "slow":
            found += _mostly_left_alone(episode, evidence)
    return [*found, *_reloaded(evidence)]


def probes_allowed(seconds: float, limits: Limits) -> int:
    """How many requests at most may try an endpoint that has been sick for so long: one each time
    that its breaker may have been half-open, which is rarer and rarer.
    """
    allowed, at, pause = 0, 0.0, limits.open_seconds
    while at <= seconds:
        allowed += 1
        at += pause * _LEAST_JITTER
        pause = min(2 * pause, limits.max_open_seconds)
    return allowed


def _between(evidence: Evidence, began: float, ended: float) -> list[Arrival]:
    arrivals = evidence.arrivals
    first = bisect_left(arrivals, began, key=_at)
    return arrivals[first : bisect_left(arrivals, ended, key=_at)]


def _at(arrival: Arrival) -> float:
    return arrival.at


def _was_felt(episode: Episode, evidence: Evidence) -> Iterator[str]:
    """Otherwise whatever follows shows nothing."""
    before = _between(evidence, episode.began - 1.0, episode.began)
    if not any(arrival.box == episode.box for arrival in before):
        yield f"{episode} had no traffic before it fell sick"
    if episode.fault is not None:
        since = _between(evidence, episode.began - 1.0, episode.ended)
        if not any(a.box == episode.box and a.how in episode.fault.traces for a in since):
            yield f"{episode} was felt by nobody"
    elif not any(
        record.outcome == "cut" and record.endpoint == episode.box for record in evidence.records
    ):
        yield f"nothing was cut in the middle when {episode.box} was killed"


def _left_alone(episode: Episode, evidence: Evidence) -> Iterator[str]:
    fault = episode.fault
    # A request whose kept connection is reset is sent once more on a fresh one.
    each = 2 if fault is not None and fault.kind == "reset" else 1
    allowed = each * probes_allowed(episode.ended - episode.began, evidence.limits)
    # A probe whose client leaves says nothing, and the next request may try.
    unsaid = {record.number for record in evidence.records if record.outcome == "left"}
    came = [
        arrival
        for arrival in _between(evidence, episode.began + NOTICED, episode.ended)
        if _is_for(arrival, episode) and arrival.request not in unsaid
    ]
    if len(came) > allowed:
        shown = ", ".join(f"{arrival.at - episode.began:.2f}" for arrival in came[:12])
        yield (
            f"{episode} got {len(came)} requests where {allowed} probes are allowed, so many "
            f"seconds after it fell sick: {shown} ..."
        )
    if at_once := _at_the_same_time(came):
        yield f"{episode} got {at_once} probes at the same time"
    if fault is None:
        yield from _spared(episode, evidence)


def _at_the_same_time(arrivals: list[Arrival]) -> int:
    """The most that were answered at once, if that is more than one."""
    most = max(
        (sum(b.at <= a.at < b.ended for b in arrivals) for a in arrivals),
        default=0,
    )
    return most if most > 1 else 0


def _spared(episode: Episode, evidence: Evidence) -> Iterator[str]:
    """Of a dead endpoint, only those who were sent on know."""
    began = episode.began + NOTICED
    others = [e for e in evidence.episodes if e is not episode and _overlap(e, episode)]
    if others:
        return
    paid = [
        record
        for record in evidence.records
        if began <= record.started and record.ended < episode.ended and record.attempts > 1
    ]
    allowed = len(MODELS) * probes_allowed(episode.ended - episode.began, evidence.limits)
    if len(paid) > allowed:
        yield f"{episode}: {len(paid)} requests came to others by way of it, {allowed} may"


def _overlap(one: Episode, other: Episode) -> bool:
    return one.began < other.well and other.began < one.well


def _cooled(episode: Episode, fault: Fault, evidence: Evidence) -> Iterator[str]:
    """After a 429 that model is left alone there for as long as it says, and only that one."""
    # The first may have met it in the moment before the backend said that it has taken it.
    came = [
        arrival
        for arrival in _between(evidence, episode.began - 1.0, episode.ended)
        if arrival.box == episode.box
    ]
    first = next((arrival.ended for arrival in came if arrival.how == "limit"), episode.ended)
    cooling = [
        arrival
        for arrival in came
        if first + _LET_GO / 2 <= arrival.at < first + fault.retry_after - _LET_GO / 2
    ]
    limited = [arrival for arrival in cooling if arrival.model == fault.model]
    if limited:
        yield f"{episode} got {len(limited)} requests for {fault.model} in its pause"
    if len(limited) == len(cooling):
        yield f"{episode} got none for the other model either"


def _mostly_left_alone(episode: Episode, evidence: Evidence) -> Iterator[str]:
    """One that answers now and then closes its breaker again and again."""
    since = _between(evidence, episode.began + NOTICED, episode.ended)
    share = _share(since, episode.box)
    due = 1 / len(evidence.boxes)
    if len(since) >= _ENOUGH and share > _FLAKY_SHARE * due:
        yield f"{episode} got {share:.0%} of the traffic when it was known to be sick"


def _share(arrivals: list[Arrival], box: str) -> float:
    return sum(arrival.box == box for arrival in arrivals) / max(1, len(arrivals))


def _came_back(episode: Episode, evidence: Evidence) -> Iterator[str]:
    limits = evidence.limits
    first = next(
        (a.at for a in _between(evidence, episode.well, evidence.ended) if _is_for(a, episode)),
        None,
    )
    if first is None:
        yield f"{episode} was well again, and got no requests"
        return
    longest = limits.first_byte + limits.max_open_seconds + _RETURN_SLACK
    if first - episode.well > longest:
        yield f"{episode} was asked {first - episode.well:.2f} s after it was well again"
    if _somebody_is_ready(episode, first, evidence):
        yield from _step_by_step(episode, first, evidence)
    yield from _stays(episode, first, evidence)


def _is_for(arrival: Arrival, episode: Episode) -> bool:
    return (arrival.box, arrival.model) == (episode.box, BUSY)


def _step_by_step(episode: Episode, first: float, evidence: Evidence) -> Iterator[str]:
    """What came in the first moments after ``first`` is less than later on."""
    shares, counts = [], []
    for window in (_EARLY, _LATE):
        began, ended = (first + part * evidence.limits.slow_start for part in window)
        came = [arrival for arrival in _between(evidence, began, ended) if arrival.model == BUSY]
        shares.append(_share(came, episode.box))
        counts.append(len(came))
    if min(counts) < _ENOUGH:
        yield f"{episode}: {counts} requests after its return show nothing"
        return
    early, late = shares
    if late < _LATE_SHARE / len(evidence.boxes):
        yield f"{episode} was well again, and got {late:.0%} of the requests"
    by_chance = _DEVIATIONS * sqrt(early * (1 - early) / counts[0])
    if early - by_chance > _EARLY_SHARE * late:
        yield f"{episode} got {early:.0%} of the requests at once, and {late:.0%} later on"


def _somebody_is_ready(episode: Episode, first: float, evidence: Evidence) -> bool:
    """Whether another endpoint is well, and has been for some time: where all have just come back
    there is nobody to spare them.
    """
    limits = evidence.limits
    recovering = limits.max_open_seconds + 2 * limits.slow_start
    unwell = {
        e.box
        for e in evidence.episodes
        if e.began < first + limits.slow_start and first < e.well + recovering
    }
    return not unwell.issuperset(set(evidence.boxes) - {episode.box})


def _stays(episode: Episode, first: float, evidence: Evidence) -> Iterator[str]:
    """Once its traffic is back, an endpoint that is well is not left alone again."""
    again = (e.began for e in evidence.episodes if e.box == episode.box and e.began > first)
    passed, last = 0, first
    for arrival in _between(evidence, first, min(again, default=evidence.ended)):
        if _is_for(arrival, episode):
            passed, last = 0, arrival.at
        elif arrival.model == BUSY:
            passed += 1
        if passed >= _MISSED and arrival.at - last > _GAP:
            yield f"{episode} was left alone although it was well again"
            return


def _reloaded(evidence: Evidence) -> Iterator[str]:
    """Requests that began with a configuration go only to endpoints that are in it."""
    started = {record.number: record.started for record in evidence.records}
    configured = [frozenset(evidence.boxes), *(reload.endpoints for reload in evidence.reloads)]
    times = [evidence.began, *(reload.at for reload in evidence.reloads), float("inf")]
    strangers = frozenset.union(*configured) - frozenset(evidence.boxes)
    came = [a for a in evidence.arrivals if a.box in strangers and a.request is not None]
    for box in strangers:
        if not any(arrival.box == box for arrival in came):
            yield f"{box} came with a reload, and was never asked"
    for endpoints, begin, end in zip(configured, times, times[1:], strict=False):
        for arrival in came:
            at = started[arrival.request] if arrival.request is not None else arrival.at
            if begin + _LET_GO <= at and arrival.at < end and arrival.box not in endpoints:
                yield f"{arrival.box} was asked {at - begin:.2f} s after a reload without it"
