"""Vector stores through OpenAI's client: stores, files, batches, searches, and whose they are."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from tests.support.searchable import FAST, pgvector_url, searchable, store_settings, uploaded

KEYS = [{"name": name, "key": f"sk-{name}-0123456789abcdef"} for name in ("alice", "bob")]


def client_of(url: str, name: str = "alice") -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=f"{url}/v1", api_key=f"sk-{name}-0123456789abcdef", timeout=30, max_retries=0
    )


@pytest.fixture(scope="module")
def pgvector() -> Iterator[str]:
    with pgvector_url() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("pgvector", marks=pytest.mark.integration)])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    state = None
    if request.param == "pgvector":
        server, name = request.getfixturevalue("pgvector"), f"test_{secrets.token_hex(6)}"
        connection = await asyncpg.connect(server)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        state = server.replace("@/postgres?", f"@/{name}?")
    async with searchable(tmp_path, url=state, auth={"keys": KEYS}) as url:
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with client_of(url) as client:
        yield client


async def test_a_file_is_uploaded_ingested_and_found(client: AsyncOpenAI) -> None:
    store = await client.vector_stores.create(name="Manuals", metadata={"team": "docs"})
    assert (store.status, store.file_counts.total, store.metadata) == (
        "completed", 0, {"team": "docs"},
    )  # fmt: skip
    text = b"The pump runs at forty bar.\n\nThe lamp is green when the valve is open."
    file = await client.vector_stores.files.upload_and_poll(
        vector_store_id=store.id, file=("pump.md", text), attributes={"year": 2024}, **FAST
    )
    assert (file.status, file.last_error, file.attributes) == ("completed", None, {"year": 2024})
    assert file.usage_bytes > 0
    found = await client.vector_stores.search(store.id, query="When is the lamp green?")
    [one] = found.data
    assert (one.file_id, one.filename, one.attributes) == (file.id, "pump.md", {"year": 2024})
    assert "The lamp is green" in one.content[0].text
    assert 0 < one.score <= 1
    store = await client.vector_stores.retrieve(store.id)
    assert (store.file_counts.completed, store.usage_bytes) == (1, file.usage_bytes)
    content = await client.vector_stores.files.content(file.id, vector_store_id=store.id)
    assert [part.text for part in content.data] == [text.decode()]


async def test_a_batch_is_ingested_and_filtered_by_attributes(client: AsyncOpenAI) -> None:
    ids = [await uploaded(client, f"{n}.txt", f"Report {n} on apples") for n in range(6)]
    store = await client.vector_stores.create()
    batch = await client.vector_stores.file_batches.create_and_poll(
        store.id, file_ids=ids, attributes={"kind": "report"}, **FAST
    )
    assert (batch.status, batch.file_counts.completed, batch.file_counts.total) == (
        "completed", 6, 6,
    )  # fmt: skip
    for number, ident in enumerate(ids):
        await client.vector_stores.files.update(
            ident, vector_store_id=store.id, attributes={"kind": "report", "n": number}
        )
    found = await client.vector_stores.search(
        store.id,
        query="apples",
        filters={
            "type": "and",
            "filters": [
                {"type": "gte", "key": "n", "value": 2},
                {"type": "in", "key": "n", "value": [1, 2, 5]},
            ],
        },
    )
    assert {one.file_id for one in found.data} == {ids[2], ids[5]}
    assert [one.score for one in found.data] == sorted((x.score for x in found.data), reverse=True)
    page = await client.vector_stores.file_batches.list_files(
        batch.id, vector_store_id=store.id, limit=4, order="asc"
    )
    assert [one.id async for one in page] == ids
    listed = await client.vector_stores.files.list(
        store.id, limit=2, order="asc", before=ids[4], filter="completed"
    )
    assert [one.id for one in listed.data] == ids[2:4]


async def test_what_is_removed_is_not_found(client: AsyncOpenAI) -> None:
    ids = [await uploaded(client, f"{n}.txt", f"Pears, basket {n}") for n in range(3)]
    store = await client.vector_stores.create(file_ids=ids)
    await client.vector_stores.files.poll(ids[0], vector_store_id=store.id, **FAST)
    await client.vector_stores.files.poll(ids[1], vector_store_id=store.id, **FAST)
    await client.vector_stores.files.poll(ids[2], vector_store_id=store.id, **FAST)
    await client.vector_stores.files.delete(ids[0], vector_store_id=store.id)
    await client.files.delete(ids[1])
    found = await client.vector_stores.search(store.id, query="pears")
    assert [one.file_id for one in found.data] == [ids[2]]
    with pytest.raises(NotFoundError):
        await client.vector_stores.files.retrieve(ids[0], vector_store_id=store.id)
    assert (await client.files.retrieve(ids[0])).id == ids[0]
    await client.vector_stores.delete(store.id)
    with pytest.raises(NotFoundError):
        await client.vector_stores.search(store.id, query="pears")


async def test_files_that_have_no_text_fail_with_a_reason(client: AsyncOpenAI) -> None:
    store = await client.vector_stores.create()
    file = await client.vector_stores.files.upload_and_poll(
        vector_store_id=store.id, file=("a.bin", b"\x00\x01\xff\xfe" * 500), **FAST
    )
    assert file.status == "failed"
    assert file.last_error is not None
    assert file.last_error.code in ("unsupported_file", "invalid_file")


async def test_nobody_names_another_keys_stores_or_files(url: str, client: AsyncOpenAI) -> None:
    file = await uploaded(client, "secret.txt", "Alice's secret")
    store = await client.vector_stores.create(file_ids=[file])
    async with client_of(url, "bob") as bob:
        stores = bob.vector_stores
        own = await stores.create()
        for attempt in (
            stores.retrieve(store.id),
            stores.update(store.id, name="mine"),
            stores.delete(store.id),
            stores.search(store.id, query="secret"),
            stores.files.list(store.id),
            stores.files.retrieve(file, vector_store_id=store.id),
            stores.files.content(file, vector_store_id=store.id),
            stores.files.delete(file, vector_store_id=store.id),
            stores.files.create(own.id, file_id=file),
            stores.file_batches.create(own.id, file_ids=[file]),
            stores.create(file_ids=[file]),
        ):
            with pytest.raises(NotFoundError):
                await attempt
        assert [one.id async for one in await stores.list()] == [own.id]
    assert (await client.vector_stores.retrieve(store.id)).name == ""


async def test_stores_are_listed_and_changed(client: AsyncOpenAI) -> None:
    ids = [(await client.vector_stores.create(name=str(n))).id for n in range(5)]
    assert [one.id async for one in await client.vector_stores.list(limit=2)] == ids[::-1]
    page = await client.vector_stores.list(limit=2, order="asc", before=ids[3])
    assert [one.id for one in page.data] == ids[1:3]
    for param in ("after", "before"):
        with pytest.raises(BadRequestError) as refused:
            await client.vector_stores.list(**{param: "vs_0"})  # type: ignore[arg-type]
        assert refused.value.param == param
    changed = await client.vector_stores.update(
        ids[0], name="renamed", expires_after={"anchor": "last_active_at", "days": 3}
    )
    assert (changed.name, changed.status) == ("renamed", "completed")
    assert changed.expires_at is not None
    assert changed.last_active_at is not None
    assert changed.expires_at == changed.last_active_at + 3 * 86_400


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"chunking_strategy": {"type": "static"}}, "chunking_strategy.static"),
        (
            {
                "chunking_strategy": {
                    "type": "static",
                    "static": {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": 101},
                }
            },
            "chunking_strategy.static.chunk_overlap_tokens",
        ),
        ({"expires_after": {"anchor": "created_at", "days": 1}}, "expires_after.anchor"),
        ({"name": 7}, "name"),
        ({"file_ids": "file-1"}, "file_ids"),
    ],
)
async def test_what_is_wrong_is_named(client: AsyncOpenAI, body: object, param: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        await client.post("/vector_stores", body=body, cast_to=object)
    assert refused.value.param == param


async def test_no_store_is_left_where_its_files_are_too_many(tmp_path: Path) -> None:
    sections = store_settings(tmp_path)
    sections["vector_stores"]["max_files"] = 1
    async with searchable(tmp_path, **sections) as url, client_of(url) as client:
        ids = [await uploaded(client, f"{n}.txt", "text") for n in range(2)]
        with pytest.raises(BadRequestError, match="1 files at most"):
            await client.vector_stores.create(file_ids=ids)
        assert (await client.vector_stores.list()).data == []


async def test_what_is_missing_is_named(client: AsyncOpenAI) -> None:
    """Nothing is changed where a request does not say to what."""
    store = await client.vector_stores.create()
    file = await client.vector_stores.files.create(
        store.id, file_id=await uploaded(client, "a.txt", "text"), attributes={"n": 1}
    )
    path = f"/vector_stores/{store.id}"
    attempts: list[tuple[str, object, str]] = [
        (f"/files/{file.id}", {}, "attributes"),
        ("/file_batches", {"files": []}, "files"),
        ("/file_batches", {"file_ids": []}, "file_ids"),
    ]
    for end, body, param in attempts:
        with pytest.raises(BadRequestError) as refused:
            await client.post(path + end, body=body, cast_to=object)
        assert refused.value.param == param
    kept = await client.vector_stores.files.retrieve(file.id, vector_store_id=store.id)
    assert kept.attributes == {"n": 1}


async def test_a_search_takes_any_text_and_number(client: AsyncOpenAI) -> None:
    store = await client.vector_stores.create()
    file = await client.vector_stores.files.upload_and_poll(
        vector_store_id=store.id, file=("a.txt", b"apples"), attributes={"n": 1e19}, **FAST
    )
    for kind, value in (("eq", 10**19), ("lt", (1 << 64) - 1), ("gte", -(1 << 63))):
        found = await client.vector_stores.search(
            store.id,
            query="apples\0 ",
            filters={"type": kind, "key": "n", "value": value},  # type: ignore[arg-type]
        )
        assert [one.file_id for one in found.data] == [file.id]


async def test_filters_that_are_wrong_are_named(client: AsyncOpenAI) -> None:
    store = await client.vector_stores.create()
    for filters, param in (
        ({"type": "like", "key": "a", "value": 1}, "filters.type"),
        ({"type": "eq", "value": 1}, "filters.key"),
        ({"type": "eq", "key": "a\0", "value": 1}, "filters.key"),
        ({"type": "in", "key": "a", "value": ["b\0"]}, "filters.value[0]"),
        ({"type": "or", "filters": [{"type": "in", "key": "a", "value": 1}]},
         "filters.filters[0].value"),
    ):  # fmt: skip
        with pytest.raises(BadRequestError) as refused:
            await client.post(
                f"/vector_stores/{store.id}/search",
                body={"query": "x", "filters": filters},
                cast_to=object,
            )
        assert refused.value.param == param
