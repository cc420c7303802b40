"""The figures of a run, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.chaos.records import Evidence, Record
from tests.chaos.spread import NOTICED

__all__ = ["lines"]

_PHASES = ("all are well", "one falls sick", "one is sick", "one comes back")


def lines(evidence: Evidence) -> list[str]:
    """What came out."""
    records = evidence.records
    seconds = evidence.ended - evidence.began
    text = [
        f"{len(records)} requests in {seconds:.0f} s, {len(evidence.reloads)} reloads",
        f"  outcomes   {_counted(record.outcome for record in records)}",
        f"  attempts   {_counted(str(record.attempts) for record in records)}",
        f"  served by  {_counted(record.endpoint or 'nobody' for record in records)}",
    ]
    for episode in evidence.episodes:
        sick = episode.ended - episode.began
        came = [a for a in evidence.arrivals if a.box == episode.box]
        known = sum(episode.began + NOTICED <= a.at < episode.ended for a in came)
        back = next((a.at - episode.well for a in came if a.at > episode.well), None)
        again = "never" if back is None else f"after {back:.2f} s"
        text.append(
            f"  {episode}: sick for {sick:.1f} s, {known} requests after {NOTICED:g} s, "
            f"asked again {again}"
        )
    text.append("  time to first output of streams, ms, those that others served at first try:")
    for phase in _PHASES:
        times = [
            1000 * (r.first_output - r.started) for r in records if _phase(r, evidence) == phase
        ]
        text.append(f"    {phase:<16} {_quantiles(times)}")
    return text


def _counted(values: Iterable[str]) -> str:
    return ", ".join(f"{value}: {count}" for value, count in sorted(Counter(values).items()))


def _quantiles(times: Sequence[float]) -> str:
    if not times:
        return "-"
    ordered = sorted(times)
    p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    return f"p50 {p50:6.1f}  p99 {p99:7.1f}  of {len(ordered)}"


def _phase(record: Record, evidence: Evidence) -> str | None:
    """When a stream was asked for; None for those that do not tell how the healthy ones are."""
    if not record.stream or record.attempts != 1 or record.first_output == float("inf"):
        return None
    at, phase = record.started, _PHASES[0]
    for episode in evidence.episodes:
        if not episode.began <= at < episode.well + 2 * evidence.limits.slow_start:
            continue
        if record.endpoint == episode.box:
            return None
        if at >= episode.ended:
            phase = max(phase, _PHASES[3], key=_PHASES.index)
        elif at >= episode.began + NOTICED:
            return _PHASES[2]
        else:
            return _PHASES[1]
    return phase
