"""Embeddings of vector stores in the usage ledger, in budgets, and in the metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, RateLimitError

from tests.support.fleet import http_client
from tests.support.searchable import FAST, searchable
from tests.support.upstream import Upstream, json_answer
from tests.support.waiting import until

ADMIN = "sk-ops-0123456789abcdef"
KEY = "sk-alice-0123456789abcdef"
TEXT = b"The lamp is green when the valve is open."
PRICES = {"prices": {"sim-embed": {"input": 20.0, "output": 0.0}}}


@asynccontextmanager
async def stage(
    directory: Path, *budgets: dict[str, Any], **settings: Any
) -> AsyncIterator[tuple[AsyncOpenAI, str]]:
    """The client of a key with these budgets, and the router."""
    alice: dict[str, Any] = {"name": "alice", "key": KEY, "budgets": list(budgets)}
    settings = {"accounts": PRICES, "auth": {"keys": [alice]}, "admin": {"key": ADMIN}, **settings}
    async with (
        searchable(directory, **settings) as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, timeout=30, max_retries=0) as client,
    ):
        yield client, url


async def fetched(url: str, path: str) -> Any:
    """What an operator gets: JSON, or text."""
    async with (
        http_client(headers={"Authorization": f"Bearer {ADMIN}"}) as session,
        session.get(url + path) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return await (answer.json() if "json" in answer.content_type else answer.text())


async def used(url: str, by: str, attempts: int = 1) -> dict[str, Any]:
    """The one group of the usage report that is of embeddings, when all of them are written."""

    async def written() -> dict[str, Any] | None:
        report = await fetched(url, f"/admin/usage?since=1h&by={by}&kind=index")
        if report["total"]["attempts"] < attempts:
            return None
        [group] = report["data"]
        found: dict[str, Any] = group
        return found

    groups: dict[str, Any] = await until(written)
    return groups


async def ingested(client: AsyncOpenAI, text: bytes = TEXT) -> tuple[str, Any]:
    """A store, and its file when that is done with."""
    store = await client.vector_stores.create()
    file = await client.vector_stores.files.upload_and_poll(
        vector_store_id=store.id, file=("lamp.md", text), **FAST
    )
    return store.id, file


async def test_what_embeds_a_file_and_a_query_is_used_by_the_key(tmp_path: Path) -> None:
    async with stage(tmp_path, {"period": "day", "usd": 1.0}) as (client, url):
        store, file = await ingested(client)
        assert file.status == "completed", file.last_error
        first = await used(url, "key,endpoint,served,operation")
        assert [first[name] for name in ("key", "endpoint", "served", "operation")] == [
            "alice", "vectors", "sim-embed", "vector_stores",
        ]  # fmt: skip
        assert (first["requests"], first["attempts"]) == (0, 1)
        tokens = first["tokens"]["input"]
        assert tokens > 0
        assert float(first["cost_usd"]) == pytest.approx(tokens * 20e-6)
        await client.vector_stores.search(store, query="When is the lamp green?")
        both = await used(url, "key", 2)
        assert both["attempts"] == 2
        assert both["tokens"]["input"] > tokens


async def test_a_search_by_words_uses_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as (client, url):
        store, _ = await ingested(client)
        await client.vector_stores.search(
            store,
            query="green lamp",
            extra_body={
                "ranking_options": {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}
            },
        )
        group = await used(url, "key")
        assert group["attempts"] == 1


async def test_without_room_in_the_budget_a_file_fails_and_says_why(tmp_path: Path) -> None:
    async with stage(tmp_path, {"period": "day", "tokens": 30}) as (client, url):
        store, file = await ingested(client)
        assert file.status == "completed", file.last_error
        _, failed = await ingested(client, TEXT * 3)
        assert failed.status == "failed"
        assert failed.last_error.code == "server_error"
        assert failed.last_error.message.startswith(
            "The file was not embedded: The budget of key 'alice' for today"
        )
        with pytest.raises(RateLimitError) as refused:
            await client.vector_stores.search(store, query="When is the lamp green? " * 5)
        assert refused.value.code == "insufficient_quota"
        group = await used(url, "key")
        assert group["attempts"] == 1


async def test_metrics_tell_of_ingestions_and_searches(tmp_path: Path) -> None:
    async with stage(tmp_path) as (client, url):
        store, _ = await ingested(client)
        await ingested(client, b"")
        await client.vector_stores.search(store, query="green")

        async def told() -> bool:
            text = await fetched(url, "/metrics")
            return all(
                f"pointsman_vector_store_{line}\n" in text
                for line in (
                    'files_total{result="completed"} 1.0',
                    'files_total{result="failed"} 1.0',
                    "ingestion_seconds_count 2.0",
                    "files_waiting 0.0",
                    'searches_total{result="ok"} 1.0',
                    "search_seconds_count 1.0",
                )
            )

        await until(told)


async def test_an_endpoint_that_reports_no_tokens_is_estimated(tmp_path: Path) -> None:
    def vectors(texts: list[str]) -> dict[str, Any]:
        return {"data": [{"index": i, "embedding": [1.0, 0.5]} for i in range(len(texts))]}

    async with Upstream(
        default=lambda wire: json_answer(vectors(wire.request.json["input"]))(wire)
    ) as upstream:
        endpoint = {
            "name": "plain", "dialect": "chat", "url": f"{upstream.address}/v1", "models": ["e"],
        }  # fmt: skip
        stores = {"embedder": {"endpoint": "plain", "model": "e"}}
        alice = {"name": "alice", "key": KEY}
        async with (
            searchable(
                tmp_path,
                endpoint,
                vector_stores=stores,
                auth={"keys": [alice]},
                admin={"key": ADMIN},
            ) as url,
            AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client,
        ):
            _, file = await ingested(client)
            assert file.status == "completed", file.last_error
            group = await used(url, "provenance")
            assert group["provenance"] == "estimated"
            assert group["tokens"]["input"] == -(-len(TEXT) // 4)
