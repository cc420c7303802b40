"""Holds the evidence to what was promised to each client."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from tests.chaos.records import Arrival, Episode, Evidence, Limits, Record

__all__ = ["audit_requests"]

_AT_ONCE: Final = 3.0
"""Seconds that "at once" may take when the machine is busy."""

_SLACK: Final = 15.0
"""Seconds that a deadline may be missed by when the machine is busy."""


def audit_requests(evidence: Evidence) -> list[str]:
    """Every promise to a client that was broken."""
    found = list(evidence.left)
    for record in evidence.records:
        found += [f"{record}: {fault}" for fault in record.faults]
        found += _ending(record, evidence)
        found += _patience(record, evidence.limits)
    return [*found, *_asked_twice(evidence)]


def _ending(record: Record, evidence: Evidence) -> Iterator[str]:
    if record.outcome == "cut":
        yield from _cut(record, evidence)
    elif record.outcome == "refused":
        if healthy := _healthy(record, evidence):
            yield f"{record}: {', '.join(healthy)} had room"
    elif record.outcome not in ("ok", "left"):
        yield str(record)
    elif record.outcome == "ok" and not (record.endpoint and record.attempts):
        yield f"{record}: who has served it, and how, is not told"


def _healthy(record: Record, evidence: Evidence) -> list[str]:
    """The endpoints that were well from the beginning of the request to its end."""
    sick = {
        episode.box
        for episode in evidence.episodes
        if episode.began <= record.ended and record.started < episode.well
    }
    return [box for box in evidence.boxes if box not in sick]


def _patience(record: Record, limits: Limits) -> Iterator[str]:
    if record.ended - record.started > _deadline(record, limits) + _SLACK:
        yield f"{record}: past its deadline"
    if record.silence > limits.idle + _SLACK:
        yield f"{record}: silent for {record.silence:.2f} s in its output"


def _deadline(record: Record, limits: Limits) -> float:
    """Seconds after which the request has to be over."""
    attempt = limits.connect + limits.total
    if record.stream:
        # What comes before the first output may fail thrice, each time after the longest silence.
        lost = limits.connect + limits.first_byte + limits.idle
        return limits.queue_timeout + (limits.max_attempts - 1) * lost + attempt
    return limits.queue_timeout + limits.max_attempts * attempt


def _cut(record: Record, evidence: Evidence) -> Iterator[str]:
    """A stream that ended with an error in the middle of its output: was it to be helped?"""
    reasons = [
        episode
        for episode in evidence.episodes
        if episode.box == record.endpoint
        and episode.cuts
        and episode.began <= record.ended
        and record.started < episode.well
    ]
    if not reasons:
        yield f"{record}: nothing has cut it off"
        return
    killed = [episode for episode in reasons if episode.fault is None]
    if killed and killed == reasons and (late := record.ended - killed[-1].began) > _AT_ONCE:
        yield f"{record}: told {late:.2f} s after {killed[-1]} died"


def _asked_twice(evidence: Evidence) -> Iterator[str]:
    """No endpoint gets the same request twice while there are others."""
    known = [arrival for arrival in evidence.arrivals if arrival.request is not None]
    known.sort(key=_request)
    for request, group in groupby(known, _request):
        arrivals = list(group)
        boxes = [arrival.box for arrival in arrivals]
        again = {box for box in boxes if boxes.count(box) > 1}
        for box in again - {e.box for e in evidence.episodes if _breaks(e, arrivals[0].at)}:
            yield f"request {request} came to {box} {boxes.count(box)} times: {boxes}"


def _breaks(episode: Episode, at: float) -> bool:
    """Whether kept connections break at that time. A request that has just been written to one
    is sent once more on a fresh one, to the same endpoint.
    """
    breaks = episode.fault is None or episode.fault.kind == "reset"
    return breaks and episode.began - 1.0 < at < episode.well + 1.0


def _request(arrival: Arrival) -> int:
    assert arrival.request is not None
    return arrival.request
