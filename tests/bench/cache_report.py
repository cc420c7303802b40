"""The figures of the cache's benchmark, their targets, and the table. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from .report import Spread

__all__ = ["Figure", "Findings"]

_WIDTH: Final = 58


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: the median of its rounds, in ``unit``. At most one of the bounds is set, and
    none where the figure is told for what it is.
    """

    part: str
    title: str
    spread: Spread
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """None without a target."""
        if self.at_most is not None:
            return self.spread.median <= self.at_most
        return None if self.at_least is None else self.spread.median >= self.at_least

    @property
    def target(self) -> str:
        """In words."""
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return "" if self.at_least is None else f">= {self.at_least:g}"


@dataclass(slots=True)
class Findings:
    """What a run found, in order; ``left_out`` says what could not be measured, and why."""

    figures: list[Figure] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(
        self,
        part: str,
        title: str,
        values: Iterable[float] | float,
        unit: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        note: str = "",
    ) -> None:
        """Note a figure; raises ValueError where it has no value."""
        spread = Spread.of([values] if isinstance(values, (int, float)) else values)
        if spread is None:
            raise ValueError(f"{title}: nothing was measured")
        self.figures.append(Figure(part, title, spread, unit, at_most, at_least, note))

    def table(self) -> list[str]:
        """Its lines."""
        head = f"{'':{_WIDTH}}{'median':>10}  {'unit':12}{'rounds':18}{'target':>9}"
        lines, part = [head], ""
        for figure in self.figures:
            if figure.part != part:
                part = figure.part
                lines.append(f"-- {part}")
            lines.append(_line(figure))
        lines += [f"left out: {reason}" for reason in self.left_out]
        return lines

    def missed(self) -> list[Figure]:
        """The figures that miss their target."""
        return [figure for figure in self.figures if figure.met is False]

    def as_json(self) -> list[dict[str, Any]]:
        """The same as plain data."""
        return [
            {
                "part": one.part,
                "title": one.title,
                "value": one.spread.median,
                "low": one.spread.low,
                "high": one.spread.high,
                "unit": one.unit,
                "target": one.target,
                "met": one.met,
                "note": one.note,
            }
            for one in self.figures
        ]


def _line(figure: Figure) -> str:
    spread = figure.spread
    between = ""
    if spread.low != spread.high:
        between = f"{_number(spread.low)}–{_number(spread.high)}"
    verdict = {None: "", True: "  met", False: "  NOT MET"}[figure.met]
    start = f"{figure.title:{_WIDTH}}{_number(spread.median):>10}  {figure.unit:12}{between:18}"
    note = f"  ({figure.note})" if figure.note else ""
    return f"{start}{figure.target:>9}{verdict}{note}".rstrip()


def _number(value: float) -> str:
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 10 else f"{value:.3f}"
