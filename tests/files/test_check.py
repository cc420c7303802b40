"""What ``pointsman check`` says of where files are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.cli.files import glance
from tests.support.router import settings_for

ENDPOINT = {"name": "one", "url": "http://127.0.0.1:1/v1", "dialect": "chat"}


def told(path: Path | None) -> tuple[bool, str]:
    return glance(settings_for(ENDPOINT, files={} if path is None else {"path": str(path)}))


def test_nothing_is_kept() -> None:
    assert told(None) == (True, "")


def test_a_directory_that_will_be_made(tmp_path: Path) -> None:
    assert told(tmp_path / "a" / "b") == (True, f"files  {tmp_path}/a/b: ok")


def test_no_directory(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    assert told(tmp_path / "a") == (False, f"files  {tmp_path}/a: FAILED: it is no directory")


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.files.extraction.find_spec", lambda name: None)
    well, line = told(tmp_path)
    assert well
    assert line.endswith(
        "install the extra 'files' from Pointsman's checkout: pip install '.[files]'"
    )
