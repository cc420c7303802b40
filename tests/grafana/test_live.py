"""Every query of every dashboard, rule and alert, asked of a real Prometheus that scrapes a router
under mixed traffic.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from router.app import ACCOUNTING
from router.core.usage_record import NANO, Tokens
from router.state.statement import Statement
from router.usage import accounting
from tests.grafana.traffic import Traffic, traffic
from tests.support.prometheus import ROOT, Prometheus, binary, prometheus

pytest.importorskip("numpy", reason="the extra 'semantic' is not installed")

_DASHBOARDS = sorted((ROOT / "grafana" / "dashboards").glob("*.json"))
_RULES = sorted((ROOT / "grafana" / "rules").glob("*.yml"))
_BUILT_IN = {"$__rate_interval": "5m", "$__range": "5m"}

_RECORDED = Statement(
    "SELECT sum(input), sum(cached), sum(output), sum(reasoning), sum(cost), "
    "sum(CASE WHEN kind <> 'tool' THEN 1 END) FROM usage WHERE kind <> 'cache'"
)

RIGHTLY_EMPTY: dict[str, str] = {
    "pointsman_cache_store_errors_total": "the store in memory always answers",
    "pointsman_vector_store_ingestion_seconds": "this router has no vector stores",
    "pointsman_vector_store_search_seconds": "this router has no vector stores",
}
"""Queries that say nothing in this traffic, by a metric that is in them, and why."""


def dashboard_queries() -> Iterator[tuple[str, str]]:
    """Where a query stands, and the query."""
    for path in _DASHBOARDS:
        made = orjson.loads(path.read_bytes())
        chosen = {f"${name}": one["allValue"] for name, one in choices(made).items()}
        for panel in made["panels"]:
            for target in panel.get("targets", ()):
                expr = target["expr"]
                for name, value in {**_BUILT_IN, **chosen}.items():
                    expr = expr.replace(name, value)
                assert "$" not in expr, expr
                yield f"{path.stem}: {panel['title']}", expr


def choices(made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The variables of a dashboard that are filled by a query."""
    listed = made["templating"]["list"]
    return {one["name"]: one for one in listed if one["type"] == "query"}


def variable_queries() -> Iterator[tuple[str, str]]:
    """What the variables of the dashboards can be chosen from, as a query."""
    for path in _DASHBOARDS:
        for name, one in choices(orjson.loads(path.read_bytes())).items():
            asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", one["query"])
            assert asked, one["query"]
            assert asked[2] == name
            yield f"{path.stem}: ${name}", f'count by ({name}) ({asked[1]}{{{name}!=""}})'


def rule_queries() -> Iterator[tuple[str, str]]:
    """Those of recording rules, and what the conditions of alerts are about."""
    for path in _RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                if "record" in rule:
                    yield rule["record"], rule["expr"]
                    yield rule["record"], rule["record"]
                    continue
                for condition in re.split(r"\sand\s", rule["expr"]):
                    measured, compared, _ = re.split(r"\s(==|<|>)\s+[\d.]+\s*$", condition)[:3]
                    assert compared
                    yield rule["alert"], measured


def metrics_in(expr: str) -> set[str]:
    """The metrics that a query asks for; a histogram's without its endings."""
    names = re.findall(r"\bpointsman[a-z0-9_:]+", expr)
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


async def test_every_query_finds_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary("prometheus")
    monkeypatch.setattr(accounting, "_LOOK_SECONDS", 0.1)  # how often it looks at budgets
    async with traffic() as clients, prometheus(clients.router.url, tmp_path) as prom:
        for _ in range(2):  # something has to grow between two scrapes
            await clients.round()
            await prom.scraped_since(time.time())
        empty: dict[str, str] = {}
        for where, expr in [*dashboard_queries(), *variable_queries(), *rule_queries()]:
            found = await prom.query(expr)
            excused = metrics_in(expr) & RIGHTLY_EMPTY.keys()
            if not found and not excused:
                empty[where] = expr
            assert not (found and metrics_in(expr) & RIGHTLY_EMPTY.keys()), expr
        if empty:  # a scrape that came too late for a busy machine leaves a gap
            await prom.scraped_since(time.time())
            empty = {where: expr for where, expr in empty.items() if not await prom.query(expr)}
        assert not empty, "\n".join(f"{where}: {expr}" for where, expr in empty.items())
        await _rules_are_well(await prom.rules())
        assert await prom.query("sum(pointsman_requests_total)") == [float(clients.sent)]
        await _exemplars(prom)
        await _agrees_with_the_ledger(clients, prom)


async def _agrees_with_the_ledger(clients: Traffic, prom: Prometheus) -> None:
    """To the token, and to a billionth of a dollar."""
    accounts = clients.router.app[ACCOUNTING]
    await accounts.ledger.flush()
    [recorded] = await accounts._database.read(_RECORDED)
    kinds = [f'pointsman_tokens_total{{kind="{kind}"}}' for kind in Tokens._fields]
    told = [sum(await prom.query(expr)) for expr in kinds]
    told += [NANO * sum(await prom.query("pointsman_cost_usd_total"))]
    told += [sum(await prom.query("pointsman_attempts_total"))]
    assert [round(number) for number in told] == list(recorded)


async def _rules_are_well(rules: list[dict[str, Any]]) -> None:
    assert len(rules) == len(list(_rules()))
    for rule in rules:
        assert rule["health"] == "ok", rule
    firing = {rule["name"] for rule in rules if rule.get("state") in ("pending", "firing")}
    assert "PointsmanEndpointDown" in firing


def _rules() -> Iterator[dict[str, Any]]:
    for path in _RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from group["rules"]


async def _exemplars(prom: Prometheus) -> None:
    """Prometheus asks for OpenMetrics, and gets the ids of requests with it."""
    for name in ("request_duration_seconds", "time_to_first_token_seconds"):
        found = await prom.get(
            "query_exemplars",
            query=f"pointsman_{name}_bucket",
            start=str(time.time() - 300),
            end=str(time.time() + 1),
        )
        ids = [one["labels"]["request_id"] for series in found for one in series["exemplars"]]
        assert ids, name
        assert all(id.startswith("req_") for id in ids), ids
