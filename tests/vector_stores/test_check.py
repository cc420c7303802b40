"""What ``pointsman check`` says of vector stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from router.cli.tools import glance
from router.settings.schema import Settings
from router.vector_stores import embedding
from tests.support.searchable import store_settings
from tests.support.state import postgresql_url

ENDPOINT = {"name": "vectors", "url": "http://127.0.0.1:9/v1", "dialect": "chat"}


def settings(directory: Path, url: str | None = None) -> Settings:
    return Settings.model_validate({"endpoints": [ENDPOINT], **store_settings(directory, url)})


def test_all_is_well(tmp_path: Path) -> None:
    assert glance(settings(tmp_path)) == (True, "tools  vector stores: ok")
    assert not list(tmp_path.glob("*vectors*"))


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "find_spec", lambda name: None if name == "apsw" else name)
    well, line = glance(settings(tmp_path))
    assert not well
    assert "apsw not installed" in line
    assert "'.[vector-stores]'" in line


async def test_a_missing_extension_is_named(tmp_path: Path) -> None:
    async with postgresql_url() as url:
        well, line = await asyncio.to_thread(glance, settings(tmp_path, url))
    assert not well
    assert "install pgvector" in line
    assert url not in line
