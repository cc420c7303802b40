"""What is generated says what the code says; rules, configurations and dashboards hold."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.boards import BOARDS
from grafana.make import main, stale
from grafana.panels import Board
from grafana.promql import INSTANCE
from grafana.table import declared, with_table
from tests.grafana.test_live import choices, dashboard_queries, metrics_in, rule_queries
from tests.support.prometheus import CONFIG, ROOT, binary

GRAFANA = ROOT / "grafana"
RULES = sorted(map(str, (GRAFANA / "rules").glob("*.yml")))
RULE_TESTS = Path(__file__).with_name("rules_test.yml")
COMPOSE = ROOT / "config" / "compose.yml"


def test_generated_files_are_up_to_date() -> None:
    assert stale() == [], "run python -m grafana.make"
    assert main(["--check"]) == 0


def test_a_table_needs_its_place() -> None:
    with pytest.raises(ValueError, match="marks"):
        with_table("no place")


def test_every_metric_is_ours_and_has_help() -> None:
    for one in declared():
        assert one.name.startswith("pointsman_")
        assert one.help.endswith("."), one
        assert not set(one.labels) & {"user", "path", "id", "request_id", "response_id"}


def test_every_metric_is_shown_somewhere_and_nothing_else() -> None:
    queries = [expr for _, expr in [*dashboard_queries(), *rule_queries()]]
    shown = {name for expr in queries for name in metrics_in(expr)}
    recorded = {name for name in shown if ":" in name}
    assert shown - recorded == {one.name for one in declared()}


def test_every_recorded_series_is_a_rule() -> None:
    records = {where for where, _ in rule_queries() if ":" in where}
    used = {name for _, expr in rule_queries() for name in metrics_in(expr) if ":" in name}
    assert used == records


def test_every_query_follows_the_chosen_routers() -> None:
    for board in BOARDS:
        for panel in board.panels:
            for query in panel.queries:
                metrics = re.findall(r"pointsman_\w+", query.expr)
                assert len(metrics) == query.expr.count(INSTANCE), query.expr


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_every_query_follows_the_chosen_endpoints_models_and_keys(board: Board) -> None:
    labels = {one.name: set(one.labels) & {"endpoint", "model", "key"} for one in declared()}
    used: set[str] = set()
    for query in (query for panel in board.panels for query in panel.queries):
        for name, matchers in re.findall(r"(pointsman_\w+)\{(.*?)\}", query.expr):
            [metric] = metrics_in(name)
            followed = set(re.findall(r'(?:^|, )(\w+)=~"\$\1"', matchers)) - {"instance"}
            assert followed == labels[metric], query.expr
            used |= followed
    made = orjson.loads((GRAFANA / "dashboards" / f"{board.uid}.json").read_bytes())
    offered = choices(made)
    assert offered.keys() == used | {"instance"}
    assert all(one["multi"] and one["includeAll"] for one in offered.values())


def test_dashboards_differ() -> None:
    assert len({board.uid for board in BOARDS}) == len(BOARDS) == 6
    assert len({board.title for board in BOARDS}) == len(BOARDS)


def understood(made: dict[str, Any]) -> dict[str, Any]:
    """What of a dashboard the SDK's model of Grafana knows."""
    register_default_plugins()
    read: dict[str, Any] = orjson.loads(JSONEncoder().encode(Dashboard.from_json(made)))
    for panel in read["panels"]:
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        if defaults.get("custom") == {}:
            del defaults["custom"]  # the same as none
    return read


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_panels_fill_the_page_and_say_what_they_show(board: Board) -> None:
    made = orjson.loads((GRAFANA / "dashboards" / f"{board.uid}.json").read_bytes())
    assert (made["uid"], made["title"]) == (board.uid, board.title)
    assert understood(made) == made
    taken: set[tuple[int, int]] = set()
    for panel in made["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
    for row in board.rows:
        assert sum(panel.width for panel in row.panels) % 24 == 0, row.title
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids)


def promtool(*arguments: str | Path) -> None:
    result = subprocess.run(
        [binary("promtool"), *map(str, arguments)], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_accepts_rules_and_configuration() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES)
    promtool("check", "config", "--lint=all", "--lint-fatal", CONFIG)


def test_alerts_fire_when_they_should() -> None:
    promtool("test", "rules", RULE_TESTS)


def rules() -> Sequence[dict[str, Any]]:
    groups = [g for path in RULES for g in yaml.safe_load(Path(path).read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def test_every_alert_says_what_to_do_and_is_tested() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    tested = RULE_TESTS.read_text()
    for alert in alerts:
        assert set(alert["annotations"]) == {"summary", "runbook"}, alert["alert"]
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert tested.count(alert["alert"]) >= 2, alert["alert"]  # that it is silent, and fires


def test_the_compose_file_mounts_what_is_there() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    inside: dict[str, Path] = {}
    for service in services.values():
        for volume in service["volumes"]:
            source, place, *_ = volume.split(":")
            if source.startswith("."):
                inside[place] = (COMPOSE.parent / source).resolve()
                assert inside[place].exists(), volume
    config = services["prometheus"]["command"][0].removeprefix("--config.file=")
    assert inside[config] == CONFIG
    # Paths in the configuration are relative to it: they have to be right in there as well.
    for pattern in yaml.safe_load(CONFIG.read_text())["rule_files"]:
        directory = (Path(config).parent / pattern).parent
        assert inside[str(Path(*_normal(directory)))] == GRAFANA / "rules"
    environment = services["grafana"]["environment"]
    assert inside[environment["GF_PATHS_PROVISIONING"]] == GRAFANA / "provisioning"
    home = Path(environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (inside[str(home.parent)] / home.name).exists()
    provider = yaml.safe_load((GRAFANA / "provisioning/dashboards/pointsman.yml").read_text())
    for one in provider["providers"]:
        assert inside[one["options"]["path"]] == GRAFANA / "dashboards"
    source = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())
    assert [one["url"] for one in source["datasources"]] == ["${PROMETHEUS_URL}"]
    assert environment["PROMETHEUS_URL"].removeprefix("http://") in " ".join(
        services["prometheus"]["command"]
    )


def _normal(path: Path) -> list[str]:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return parts
