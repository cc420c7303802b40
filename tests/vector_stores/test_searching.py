"""What a search shows of what the index has found."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI

from router.state.database import Database
from router.vector_stores.index import IndexedChunk
from router.vector_stores.objects import VectorStoreFile
from router.vector_stores.records import StoreRecords
from router.vector_stores.requests import RankingOptions, VectorStoreSearch
from router.vector_stores.searching import StoreSearcher
from router.vector_stores.sqlite_index import SqliteIndex
from tests.support.searchable import FAST, searchable
from tests.support.state import opened
from tests.vector_stores.test_records import added


async def test_only_the_files_that_are_shown_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def names(store: str, files: Collection[str]) -> dict[str, str]:
        asked.extend(files)
        return await looked_up(store, files)

    async with opened("sqlite:///:memory:") as database:
        records, index = StoreRecords(database), SqliteIndex(":memory:")
        looked_up = records.names
        monkeypatch.setattr(records, "names", names)
        await index.start()
        store = await filled(database, records, index)
        embedder: Any = SimpleNamespace(name="e")
        search = VectorStoreSearch(("lamp",), 3, ranking=RankingOptions(0.0, 0.0, 1.0))
        found = await StoreSearcher(index, embedder, records).search([store], search)
        await index.close()

    assert [one.text for one in found] == ["lamp"] * 3
    assert "file-00" not in [one.file for one in found]
    assert len(asked) <= 4


async def test_one_error_does_not_end_ingestion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = StoreRecords.candidates

    async def broken(records: StoreRecords, holder: str, limit: int) -> list[VectorStoreFile]:
        monkeypatch.setattr(StoreRecords, "candidates", candidates)
        raise RuntimeError("broken")

    monkeypatch.setattr(StoreRecords, "candidates", broken)
    async with (
        searchable(tmp_path) as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="x", timeout=30, max_retries=0) as client,
    ):
        store = await client.vector_stores.create()
        file = await client.vector_stores.files.upload_and_poll(
            vector_store_id=store.id, file=("a.txt", b"apples"), **FAST
        )
    assert file.status == "completed"


async def filled(database: Database, records: StoreRecords, index: SqliteIndex) -> str:
    """A store with forty files, of which the first was removed a moment ago."""
    files = [f"file-{number:02}" for number in range(40)]
    store = await added(database, records, *files)
    for file in files:
        piece = IndexedChunk("lamp", np.zeros((0, 0), np.float32))
        await index.replace(store.id, file, {}, "e", [piece])
    assert await records.remove(store.id, "file-00")
    return store.id
