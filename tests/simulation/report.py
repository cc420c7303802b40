"""What came of the replays, as tables in Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from tests.simulation.replay import Outcome, Replay
from tests.simulation.scene import Fault

__all__ = ["Summary", "ends_table", "loads_table", "quantile", "summarise", "times_table"]

_AFTER: Final = 60.0
"""So many seconds after a fault the fleet counts as sick."""

Figure = Callable[["Summary"], float]
Rows = Mapping[str, Sequence["Summary"]]


@dataclass(frozen=True, slots=True)
class Summary:
    """One replay in figures. Times to the first token are in seconds, from a request's arrival.

    ``quiet`` and ``sick`` are the 99th percentiles of what arrived outside of the faults, and
    during them and a minute later; ``largest`` is that of the model that is asked for most, which
    the large endpoints always have in memory. ``loads`` counts how often each model was loaded,
    ``homes`` at how many endpoints. ``hits`` is the share of the prompts' tokens that was in a
    cache, ``cost`` what the API took, in dollars.
    """

    requests: int
    p50: float
    p90: float
    p99: float
    quiet: float
    sick: float
    largest: float
    errors: Counter[str]
    shares: Mapping[str, float]
    loads: Counter[str]
    homes: Counter[str]
    hits: float
    cost: float


def quantile(values: Iterable[float], q: float) -> float:
    """The least value that the share ``q`` of them does not exceed; not a number without any."""
    ordered = sorted(values)
    return ordered[max(math.ceil(q * len(ordered)), 1) - 1] if ordered else math.nan


def summarise(replay: Replay, faults: Sequence[Fault], seconds: float) -> Summary:
    """The figures of a replay of so many seconds."""

    def sick(outcome: Outcome) -> bool:
        at = outcome.request.at
        return any(f.begins * seconds <= at < f.ends * seconds + _AFTER for f in faults)

    outcomes = replay.outcomes
    answered = [(o.first_token, o) for o in outcomes if o.first_token is not None]
    times = [time for time, _ in answered]
    (most_asked, _), *_ = Counter(o.request.model for o in outcomes).most_common(1)
    served = Counter(o.endpoint for o in outcomes if o.endpoint is not None)
    boxes = replay.boxes.values()
    memories = [box.memory for box in boxes if box.memory is not None]
    return Summary(
        requests=len(outcomes),
        p50=quantile(times, 0.5),
        p90=quantile(times, 0.9),
        p99=quantile(times, 0.99),
        quiet=quantile([time for time, o in answered if not sick(o)], 0.99),
        sick=quantile([time for time, o in answered if sick(o)], 0.99),
        largest=quantile([time for time, o in answered if o.request.model == most_asked], 0.99),
        errors=Counter(o.error for o in outcomes if o.error is not None),
        shares={name: served[name] / len(outcomes) for name in replay.boxes},
        loads=sum((memory.loads for memory in memories), Counter[str]()),
        homes=Counter(model for memory in memories for model in memory.loads),
        hits=sum(box.cached_tokens for box in boxes) / sum(box.prompt_tokens for box in boxes),
        cost=sum(box.spent for box in boxes),
    )


def times_table(rows: Rows) -> str:
    """Times to the first token, loads of models and prompt caches: medians of the replays."""
    columns: dict[str, tuple[Figure, str]] = {
        "p50": (lambda s: s.p50, "{:.2f} s"),
        "p90": (lambda s: s.p90, "{:.2f} s"),
        "p99": (lambda s: s.p99, "{:.1f} s"),
        "p99, well": (lambda s: s.quiet, "{:.1f} s"),
        "p99, sick": (lambda s: s.sick, "{:.1f} s"),
        "p99, general": (lambda s: s.largest, "{:.2f} s"),
        "loads": (lambda s: s.loads.total(), "{:.0f}"),
        "cached": (lambda s: 100.0 * s.hits, "{:.0f} %"),
        "API": (lambda s: s.cost, "${:.2f}"),
    }
    body = [
        [name, *(_median(figure, of, form) for figure, form in columns.values())]
        for name, of in rows.items()
    ]
    return _table(["policy", *columns], body)


def ends_table(rows: Rows) -> str:
    """Of all replays, how many requests were not answered, and why; and who answered."""
    kinds = sorted({kind for of in rows.values() for summary in of for kind in summary.errors})
    endpoints = list(next(iter(rows.values()))[0].shares)
    body = [
        [
            name,
            str(sum(summary.requests for summary in of)),
            *(str(sum(summary.errors[kind] for summary in of)) for kind in kinds),
            *(f"{100 * median(s.shares[endpoint] for s in of):.0f} %" for endpoint in endpoints),
        ]
        for name, of in rows.items()
    ]
    return _table(["policy", "requests", *kinds, *endpoints], body)


def loads_table(rows: Rows, models: Sequence[str]) -> str:
    """How often each model was loaded, and at how many endpoints: medians of the replays."""
    body = []
    for name, of in rows.items():
        loads = [median(summary.loads[model] for summary in of) for model in models]
        homes = [median(summary.homes[model] for summary in of) for model in models]
        both = zip(loads, homes, strict=True)
        body.append([name, *(f"{times:.0f} at {at:.0f}" for times, at in both)])
    return _table(["policy", *models], body)


def _median(figure: Figure, summaries: Sequence[Summary], form: str) -> str:
    return form.format(median(map(figure, summaries)))


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("--:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *body])
