"""Medians, ratios to the baseline, the targets and the tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

__all__ = [
    "BASELINE",
    "DIRECT",
    "DOOR_GOALS",
    "DOOR_ROWS",
    "Figures",
    "Goal",
    "Row",
    "Spread",
    "Verdict",
    "judge",
    "summary",
    "table",
    "verdict_lines",
]

DIRECT: Final = "direct"
BASELINE: Final = "baseline"
_TIMES: Final = {"x baseline": BASELINE, "x responses": "responses"}
"""Units of goals that are relative: to which target."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some rounds, and how far they lie apart."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """None of no values."""
        kept = list(values)
        return cls(median(kept), min(kept), max(kept)) if kept else None


class Figures:
    """Every figure of a run by target, name and round."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], dict[int, float]] = {}

    def add(self, target: str, round_number: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._values.setdefault((target, name), {})[round_number] = value

    def rounds(self, target: str, name: str) -> dict[int, float]:
        """By round. ``added_ms`` is what a target adds to the direct way to the upstream."""
        if name != "added_ms":
            return self._values.get((target, name), {})
        direct = self._values.get((DIRECT, "first_ms"), {})
        through = self._values.get((target, "first_ms"), {})
        return {r: through[r] - direct[r] for r in through if r in direct and target != DIRECT}

    def spread(self, target: str, name: str) -> Spread | None:
        return Spread.of(self.rounds(target, name).values())

    def ratio(self, target: str, name: str, to: str = BASELINE) -> Spread | None:
        """To another target, round by round: both were measured within seconds of each other."""
        base = self.rounds(to, name)
        own = self.rounds(target, name)
        return Spread.of(own[r] / base[r] for r in own if base.get(r, 0.0) > 0)

    def as_json(self) -> dict[str, dict[str, list[float]]]:
        """target -> name -> the rounds' values in order."""
        out: dict[str, dict[str, list[float]]] = {}
        for (target, name), by_round in self._values.items():
            out.setdefault(target, {})[name] = [by_round[r] for r in sorted(by_round)]
        return out


@dataclass(frozen=True, slots=True)
class Goal:
    """``name`` of ``target`` shall be at most ``limit``: times another target's, or in a unit."""

    title: str
    target: str
    name: str
    limit: float
    unit: str = "x baseline"

    def spread(self, figures: Figures) -> Spread | None:
        """Where the run stands; None where it was not measured."""
        if self.unit in _TIMES:
            return figures.ratio(self.target, self.name, _TIMES[self.unit])
        return figures.spread(self.target, self.name)


def _goals() -> tuple[Goal, ...]:
    goals = [
        Goal("non-stream, CPU per request", "responses", "whole_cpu_us", 2.0),
        Goal("paced stream, CPU per event", "responses", "paced_cpu_us", 1.5),
        Goal("paced stream, CPU per event", "chat", "paced_cpu_us", 3.0),
        Goal("paced stream, CPU per event", "ollama", "paced_cpu_us", 3.0),
        Goal("added time to first event", "responses", "added_ms", 2.0),
        Goal("added time to first event", "chat", "added_ms", 3.0),
        Goal("added time to first event", "ollama", "added_ms", 3.0),
        # As much as Responses passed through; rounds of one and the same differ by as much more.
        Goal("non-stream, CPU per request", "messages", "whole_cpu_us", 1.05, "x responses"),
        Goal("paced stream, CPU per event", "messages", "paced_cpu_us", 1.05, "x responses"),
        Goal("added time to first event", "messages", "added_ms", 1.05, "x responses"),
    ]
    for dialect in ("responses", "chat", "ollama", "messages"):
        goals.append(Goal("memory per open stream", dialect, "held_kib", 40.0, "KiB"))
        goals.append(Goal("memory when idle", dialect, "idle_mib", 120.0, "MiB"))
    return tuple(goals)


DOOR_GOALS: Final = _goals()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal and where the run stands; no spread where it was not measured."""

    goal: Goal
    spread: Spread | None

    @property
    def met(self) -> bool | None:
        return None if self.spread is None else self.spread.median <= self.goal.limit


def judge(figures: Figures, targets: Sequence[str], goals: Sequence[Goal]) -> list[Verdict]:
    """Every goal of these targets, in order."""
    return [Verdict(goal, goal.spread(figures)) for goal in goals if goal.target in targets]


Row = tuple[str, str, str, bool]
"""Title, unit, the figure's name, whether its ratio to the baseline is shown too."""

DOOR_ROWS: Final[tuple[Row, ...]] = (
    ("non-stream, 64 at once", "requests/s", "whole_per_s", False),
    ("", "CPU us/request", "whole_cpu_us", True),
    ("100 streams, 20 ms pace", "events/s", "paced_events_per_s", False),
    ("", "CPU us/event", "paced_cpu_us", True),
    ("32 streams, no pace", "events/s", "unpaced_events_per_s", False),
    ("", "CPU us/event", "unpaced_cpu_us", True),
    ("first event, one at a time", "ms, p50", "first_ms", False),
    ("", "ms added", "added_ms", True),
    ("500 streams held", "KiB/stream", "held_kib", False),
    ("idle", "MiB", "idle_mib", False),
)


def table(figures: Figures, targets: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """The lines of a table of medians; a figure that was not measured has none."""
    lines = [f"{'':32}{'':26}" + "".join(f"{name:>12}" for name in targets)]
    named = ""
    for title, unit, name, with_ratio in rows:
        named = title or named
        spreads = [figures.spread(target, name) for target in targets]
        if not any(spreads):
            continue
        lines.append(f"{named:32}{unit:26}" + "".join(f"{_number(s):>12}" for s in spreads))
        named = ""
        ratios = [None if t in (DIRECT, BASELINE) else figures.ratio(t, name) for t in targets]
        if with_ratio and any(ratios):
            lines.append(
                f"{'':32}{'  x baseline':26}" + "".join(f"{_times(r):>12}" for r in ratios)
            )
    return lines


def verdict_lines(figures: Figures, verdicts: Sequence[Verdict]) -> list[str]:
    """The targets, met or not."""
    # With --only, what was left out on purpose is no news.
    shown = [v for v in verdicts if figures.rounds(v.goal.target, v.goal.name)]
    if not shown:
        return []
    head = f"{'target':38}{'of':11}{'at most':>18}{'median':>9}  rounds"
    return [head, *[_line(verdict) for verdict in shown]]


def _line(verdict: Verdict) -> str:
    goal, spread = verdict.goal, verdict.spread
    wanted = f"{goal.limit:g} {goal.unit}"
    start = f"{goal.title:38}{goal.target:11}{wanted:>18}"
    if spread is None:
        return f"{start}{'-':>9}  {'':15}what it is compared with was not measured"
    between = f"{spread.low:.2f}–{spread.high:.2f}"
    return f"{start}{spread.median:>9.2f}  {between:15}{'met' if verdict.met else 'NOT MET'}"


def _number(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    value = spread.median
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _times(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.median:.2f}"


def summary(
    figures: Figures, targets: Sequence[str], rows: Sequence[Row], verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """The same as plain data: every round, medians, ratios, targets."""
    medians = {
        t: {n: s.median for _, _, n, _ in rows if (s := figures.spread(t, n)) is not None}
        for t in targets
    }
    ratios = {
        t: {
            n: s.median
            for _, _, n, wanted in rows
            if wanted and (s := figures.ratio(t, n)) is not None
        }
        for t in targets
        if t not in (DIRECT, BASELINE)
    }
    goals = [
        {
            "title": v.goal.title,
            "target": v.goal.target,
            "limit": v.goal.limit,
            "unit": v.goal.unit,
            "value": v.spread.median if v.spread else None,
            "met": v.met,
        }
        for v in verdicts
    ]
    return {"rounds": figures.as_json(), "medians": medians, "ratios": ratios, "targets": goals}
