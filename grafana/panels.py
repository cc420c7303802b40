"""Panels and dashboards: described in plain values, made with Grafana's own SDK."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana.promql import CHOSEN

__all__ = ["Board", "Panel", "Query", "Row", "as_json"]

Kind = Literal["lines", "stacked", "stat", "bars", "heatmap"]

_SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_TAG: Final = "pointsman"
_REF_IDS: Final = "ABCDEFGHIJ"


@dataclass(frozen=True)
class Query:
    """One query of a panel. ``legend`` is a template like ``{{model}}``."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel. ``unit`` is one of Grafana's. ``width`` is in 24ths of the page; ``steps`` are
    colours from a value on, the first from minus infinity. ``exemplars`` shows requests as dots.
    """

    title: str
    description: str
    unit: str
    queries: Sequence[Query]
    kind: Kind = "lines"
    width: int = 8
    height: int = 7
    steps: Sequence[tuple[float | None, str]] = ((None, "green"),)
    most: float | None = None
    exemplars: bool = False


@dataclass(frozen=True)
class Row:
    """Panels that belong together."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Board:
    """One dashboard; ``uid`` is its address in Grafana and the name of its file."""

    uid: str
    title: str
    description: str
    rows: Sequence[Row] = field(default_factory=tuple)

    @property
    def panels(self) -> list[Panel]:
        """All panels."""
        return [panel for row in self.rows for panel in row.panels]


def as_json(board: Board) -> str:
    """The dashboard as Grafana reads it."""
    made = JSONEncoder(sort_keys=True, indent=2).encode(_dashboard(board).build())
    return json.dumps(json.loads(made), sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def _dashboard(board: Board) -> dashboard.Dashboard:
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([_TAG])
        .timezone("browser")
        .time("now-3h", "now")
        .refresh("30s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Pointsman")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Source").type("prometheus")
        )
        .with_variable(_choice("instance", "Router", "pointsman_build_info"))
    )
    used = " ".join(query.expr for panel in board.panels for query in panel.queries)
    for label, metric in CHOSEN.items():
        if f'"${label}"' in used:
            made.with_variable(_choice(label, label.capitalize(), metric))
    number = 0
    for row in board.rows:
        number += 1
        made.with_row(dashboard.Row(row.title).id(number))
        for panel in row.panels:
            number += 1
            made.with_panel(_panel(panel, number))
    return made


def _choice(label: str, shown: str, metric: str) -> dashboard.QueryVariable:
    """A variable for the values of a label; several may be chosen, and at first all are."""
    return (
        dashboard.QueryVariable(label)
        .label(shown)
        .query(f"label_values({metric}, {label})")
        .datasource(_SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )


_Made = timeseries.Panel | stat.Panel | bargauge.Panel | heatmap.Panel


def _panel(panel: Panel, number: int) -> _Made:
    made = _of_kind(panel)
    made.id(number).title(panel.title).description(panel.description).datasource(_SOURCE)
    made.unit(panel.unit).span(panel.width).height(panel.height).min(0)
    if panel.most is not None:
        made.max(panel.most)
    steps = [models.Threshold(value=value, color=color) for value, color in panel.steps]
    made.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    for ref_id, query in zip(_REF_IDS, panel.queries, strict=False):
        made.with_target(_query(panel, query, ref_id))
    return made


def _of_kind(panel: Panel) -> _Made:
    if panel.kind == "stat":
        return stat.Panel().color_mode(shapes.BigValueColorMode.VALUE).reduce_options(_last())
    if panel.kind == "bars":
        horizontal = shapes.VizOrientation.HORIZONTAL
        return bargauge.Panel().orientation(horizontal).reduce_options(_last())
    if panel.kind == "heatmap":
        spectral = heatmap.HeatmapColorOptions().scheme("Spectral").steps(64)
        return heatmap.Panel().color(spectral.mode(HeatmapColorMode.SCHEME)).calculate(False)
    lines = timeseries.Panel().line_width(1).fill_opacity(8).show_points(shapes.VisibilityMode.AUTO)
    if panel.kind == "stacked":
        normal = common.StackingConfig().mode(shapes.StackingMode.NORMAL)
        lines.stacking(normal).fill_opacity(30)
    return lines.tooltip(
        common.VizTooltipOptions()
        .mode(shapes.TooltipDisplayMode.MULTI)
        .sort(shapes.SortOrder.DESCENDING)
    )


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _query(panel: Panel, query: Query, ref_id: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().ref_id(ref_id).expr(query.expr).legend_format(query.legend)
    if panel.kind in ("stat", "bars"):
        return made.instant()
    if panel.kind == "heatmap":
        made.format(PromQueryFormat.HEATMAP)
    return made.range().exemplar(panel.exemplars)
