"""The groups of tests, and what becomes of a test that is skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import conftest

ROOT = Path(__file__).parents[1]


def test_groups_name_what_is_there() -> None:
    for beginning in (one for group in conftest.GROUPS.values() for one in group):
        path, _, name = beginning.partition("::")
        assert (ROOT / path).exists(), beginning
        assert f"def {name}" in (ROOT / path).read_text() if name else True, beginning


@pytest.mark.parametrize(
    ("required", "reason", "outcome"),
    [
        (True, "Skipped: promtool is not installed", "failed"),
        (True, "Skipped: does not apply: it is no finished answer", "skipped"),
        (True, "Skipped: /somewhere/shared/data/x.json is not there", "skipped"),
        (False, "Skipped: promtool is not installed", "skipped"),
    ],
)
def test_what_is_not_installed_fails_where_everything_is_required(
    required: bool, reason: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "REQUIRE_ALL", required)
    skipped = pytest.TestReport("t", ("f", 1, "t"), {}, "skipped", ("f", 1, reason), "call")
    assert conftest._strict(skipped).outcome == outcome
