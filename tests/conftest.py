"""For all tests: which of them run when, what may be skipped, and repeatable property tests.

Three groups: ``make test`` runs what belongs to neither of the two groups below, ``make
integration`` what needs other programs (agents, SDKs in environments of their own, Prometheus),
``make soak`` what is minutes of load, kills, outages and of random examples. A test is put into a
group by a mark of its own or by ``GROUPS``.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Final, TypeVar

import pytest
from hypothesis import settings

GROUPS: Final = {
    "integration": (
        "tests/clients/",
        "tests/grafana/test_live.py",
        "tests/grafana/test_made.py::test_alerts_fire_when_they_should",
        "tests/grafana/test_made.py::test_promtool_accepts_rules_and_configuration",
    ),
    "soak": (
        "tests/accounting/",
        "tests/cache/test_guard_quality.py",
        "tests/cache/test_minilm_wordpiece.py::test_every_character_is_as_to_the_tokenizer",
        "tests/cache/test_minilm_wordpiece.py::test_pieces_are_those_of_the_tokenizer",
        "tests/endpoints/test_selector_properties.py::test_any_interleaving",
        "tests/usage/test_ledger.py::test_killed_while_it_writes",
        "tests/cache/test_index_graph.py",
        "tests/cache/test_index_model.py",
        "tests/cache/test_minilm.py::test_vectors_are_those_of_the_float_model",
        "tests/chaos/test_chaos.py",
        "tests/crash/test_database_down.py",
        "tests/crash/test_kill.py",
        "tests/crash/test_two_routers.py",
        "tests/description/test_served.py",
        "tests/simulation/test_policies_compared.py",
        "tests/sessions/runs/test_recovery.py::test_random_lives",
        "tests/state/test_model.py",
        "tests/telemetry/test_scanners.py::test_ten_thousand_random_paths_and_models_add_no_series",
        "tests/cli/test_state.py::test_beside_a_router_under_load",
        "tests/pipeline/test_hedging.py::test_whenever_anything_happens",
        "tests/test_reload.py::test_reloads_under_load_lose_nothing",
        "tests/tools/mcp/test_servers.py::test_a_hundred_at_once",
        "tests/dialects/messages/test_fuzz.py",
        "tests/dialects/test_stream_fuzz.py",
        "tests/sessions/test_any_moment.py",
    ),
}
"""By how their ids begin."""

_WHOLE_FILES: Final = {
    group: tuple(one.rstrip("/") + "/" for one in beginnings if "::" not in one)
    for group, beginnings in GROUPS.items()
}

REQUIRE_ALL: Final = os.environ.get("REQUIRE_ALL", "") not in ("", "0")
"""Whether a test that would be skipped because something is not installed fails instead."""

_MAY_BE_ABSENT: Final = re.compile(r"does not apply|/shared/")
"""Reasons to skip that are good everywhere: cases that make no sense, and reference data that are
not part of the repository.
"""

# A failure can be repeated, and no example fails for being slow on a busy machine.
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repeatable")

_Report = TypeVar("_Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is collected is garbage, and to look for some takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of a group that ``-m`` leaves out are not imported, unless they are named."""
    path = collection_path.relative_to(config.rootpath).as_posix()
    left_out = [group for group in GROUPS if f"not {group}" in config.option.markexpr]
    if not any(f"{path}/".startswith(_WHOLE_FILES[group]) for group in left_out):
        return None
    return None if any(argument.startswith(path) for argument in config.args) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before tests are chosen by their marks."""
    for item in items:
        for group, beginnings in GROUPS.items():
            if item.nodeid.startswith(beginnings):
                item.add_marker(group)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """See ``REQUIRE_ALL``."""
    return _strict((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """See ``REQUIRE_ALL``."""
    return _strict((yield))


def _strict(report: _Report) -> _Report:
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if _MAY_BE_ABSENT.search(reason) is None:
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid}: REQUIRE_ALL is set, but: {reason}"
    return report


@pytest.fixture(scope="module", autouse=True)
def _young_garbage_only() -> None:
    """Many tests collect garbage, to find what was destroyed unfinished: spare them what modules
    before this one have left for good, such as word lists.
    """
    gc.collect()
    gc.freeze()
