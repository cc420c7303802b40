"""The index: nearest and matching pieces, filters in the query, files replaced and removed."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from router.vector_stores import postgres_index
from router.vector_stores.filters import parse_filter
from router.vector_stores.index import ChunkIndex, IndexedChunk, IndexSearch, IndexUnavailable
from router.vector_stores.postgres_index import PostgresIndex
from router.vector_stores.sqlite_index import SqliteIndex
from tests.support.searchable import pgvector_url
from tests.support.state import postgresql_url

WIDTH = 16
RANDOM = np.random.default_rng(3)


@pytest.fixture(
    params=["sqlite", "memory", pytest.param("pgvector", marks=pytest.mark.integration)]
)
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ChunkIndex]:
    made: ChunkIndex
    if request.param == "pgvector":
        made = PostgresIndex(request.getfixturevalue("pgvector"))
    else:
        path = tmp_path / "index.db"
        made = SqliteIndex(":memory:" if request.param == "memory" else str(path))
    await made.start()
    yield made
    await made.remove("vs_1")
    await made.remove("vs_2")
    await made.close()


@pytest.fixture(scope="module")
def pgvector() -> Any:
    with pgvector_url() as url:
        yield url


def vectors(count: int) -> Any:
    made = RANDOM.normal(size=(count, WIDTH)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def piece(text: str, *given: Any) -> IndexedChunk:
    return IndexedChunk(text, np.concatenate(given) if given else np.zeros((0, 0), np.float32))


def search(query: str, vector: Any, **fields: Any) -> IndexSearch:
    filters = parse_filter(fields.pop("filters", None), "filters")
    about = {"store": "vs_1", "embedder": "e", "limit": 10, "condition": filters, **fields}
    return IndexSearch(query=query, vector=vector, **about)


async def numbered(index: ChunkIndex, count: int) -> None:
    for n in range(count):
        attributes = {"n": n, "half": n / 2, "even": n % 2 == 0, "name": f"file {n}"}
        await index.replace(
            "vs_1", f"f{n}", attributes, "e", [piece(f"number{n} lamp", vectors(1))]
        )


async def test_the_nearest_of_a_pieces_vectors_counts(index: ChunkIndex) -> None:
    near = vectors(1)
    await index.replace("vs_1", "far", {}, "e", [piece("far", vectors(2))])
    await index.replace("vs_1", "near", {}, "e", [piece("a"), piece("b", vectors(1), near)])
    await index.replace("vs_2", "other", {}, "e", [piece("b", near)])
    found = await index.search(search("", near[0]))
    assert [(one.file, one.position) for one in found.near] == [("near", 1), ("far", 0)]
    assert found.near[0].similarity == pytest.approx(1.0, abs=1e-5)
    assert found.matching == [] or not found.matching


async def test_words_are_found_in_any_form_in_their_store_only(index: ChunkIndex) -> None:
    await index.replace("vs_1", "f", {"a": 1}, "e", [piece("The cats' valves"), piece("Dogs")])
    await index.replace("vs_2", "f", {}, "e", [piece("A cat")])
    found = await index.search(search("Is there a cat, or a 'valve'?", vectors(1)[0]))
    assert [(one.text, one.attributes, one.similarity) for one in found.matching] == [
        ("The cats' valves", {"a": 1}, None)
    ]
    for query in ("", "'", '" OR *', "NEAR(", "& | ! : \\"):
        assert not (await index.search(search(query, None))).matching


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ({"type": "eq", "key": "n", "value": 3}, {3}),
        ({"type": "eq", "key": "half", "value": 1.5}, {3}),
        ({"type": "eq", "key": "n", "value": "3"}, set()),
        ({"type": "ne", "key": "n", "value": 3}, {0, 1, 2, 4, 5}),
        ({"type": "ne", "key": "none", "value": 3}, {0, 1, 2, 3, 4, 5}),
        ({"type": "gt", "key": "n", "value": 3}, {4, 5}),
        ({"type": "lte", "key": "half", "value": 1}, {0, 1, 2}),
        ({"type": "gt", "key": "name", "value": "file 3"}, {4, 5}),
        ({"type": "gt", "key": "name", "value": 0}, set()),
        ({"type": "eq", "key": "even", "value": True}, {0, 2, 4}),
        ({"type": "eq", "key": "even", "value": 1}, set()),
        ({"type": "in", "key": "n", "value": [1, "2", 5]}, {1, 5}),
        ({"type": "in", "key": "n", "value": []}, set()),
        ({"type": "nin", "key": "n", "value": [1, 5]}, {0, 2, 3, 4}),
        ({"type": "eq", "key": "') OR 1=1 --", "value": 1}, set()),
        (
            {
                "type": "or",
                "filters": [
                    {"type": "eq", "key": "n", "value": 0},
                    {
                        "type": "and",
                        "filters": [
                            {"type": "gte", "key": "n", "value": 3},
                            {"type": "eq", "key": "even", "value": False},
                        ],
                    },
                ],
            },
            {0, 3, 5},
        ),
    ],
)
async def test_filters_are_in_the_query(index: ChunkIndex, filters: Any, numbers: set[int]) -> None:
    await numbered(index, 6)
    found = await index.search(search("lamp", vectors(1)[0], filters=filters))
    expected = {f"f{n}" for n in numbers}
    assert {one.file for one in found.near} == expected
    assert {one.file for one in found.matching} == expected


async def test_a_file_is_replaced_and_removed_whole(index: ChunkIndex) -> None:
    await index.replace("vs_1", "f", {}, "e", [piece("old apples", vectors(1)), piece("pears")])
    size = await index.replace("vs_1", "f", {"v": 2}, "e", [piece("new apples", vectors(1))])
    assert size == len(b"new apples") + WIDTH * 4
    assert await index.texts("vs_1", "f") == ["new apples"]
    assert not (await index.search(search("pears", None))).matching
    await index.set_attributes("vs_1", "f", {"v": 3})
    [one] = (await index.search(search("apples", vectors(1)[0]))).matching
    assert one.attributes == {"v": 3}
    await index.remove("vs_1", "f")
    found = await index.search(search("apples", vectors(1)[0]))
    assert not found.near
    assert not found.matching


async def test_vectors_of_another_embedder_are_not_compared(index: ChunkIndex) -> None:
    near = vectors(1)
    await index.replace("vs_1", "old", {}, "before", [piece("words", near)])
    wide = np.ones((1, 8), np.float32) / np.sqrt(np.float32(8))
    await index.replace("vs_1", "new", {}, "e", [piece("words", wide)])
    found = await index.search(search("words", wide[0]))
    assert [one.file for one in found.near] == ["new"]
    assert {one.file: one.similarity for one in found.matching}["old"] is None


@pytest.mark.integration
async def test_large_stores_are_searched_by_the_graph(
    pgvector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_index, "_EXACT", 100)
    index = PostgresIndex(pgvector)
    await index.start()
    made = vectors(1500)
    for file in range(3):
        pieces = [piece(f"p{n}", made[n : n + 1]) for n in range(file * 500, file * 500 + 500)]
        await index.replace("vs_1", f"f{file}", {}, "e", pieces)
    right = 0
    for asked in range(20):
        found = await index.search(search("", made[asked], limit=20))
        nearest = np.argsort(-(made @ made[asked]))[:20]
        right += len({one.text for one in found.near} & {f"p{n}" for n in nearest})
        assert len(found.near) == 20
    assert right > 0.9 * 400
    await index.remove("vs_1")
    await index.close()


@pytest.mark.integration
async def test_vectors_are_written_by_threads_a_few_at_a_time(
    pgvector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may have tens of thousands of them, and the event loop others to serve."""
    threads: list[int] = []

    def literal(vector: Any) -> str:
        threads.append(threading.get_ident())
        return written(vector)

    written = postgres_index._literal
    monkeypatch.setattr(postgres_index, "_literal", literal)
    monkeypatch.setattr(postgres_index, "_AT_ONCE", 2)
    index, made = PostgresIndex(pgvector), vectors(5)
    await index.start()
    await index.replace("vs_1", "f", {}, "e", [piece(f"p{n}", made[n : n + 1]) for n in range(5)])
    assert len(threads) == 5
    assert threading.get_ident() not in threads
    for number in range(5):
        found = await index.search(search("", made[number]))
        assert found.near[0].text == f"p{number}"
    await index.remove("vs_1")
    await index.close()


async def test_a_server_without_pgvector_says_so() -> None:
    async with postgresql_url() as url:
        index = PostgresIndex(url)
        with pytest.raises(IndexUnavailable, match="install pgvector"):
            await index.start()
        await index.close()
