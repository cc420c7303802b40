"""The tool ``file_search`` in Responses: in front of each dialect, streamed and in one piece."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from router.settings.schema import Dialect
from tests.support.calling_model import Said, asked_tools, calling, outputs_of
from tests.support.searchable import FAST, searchable
from tests.support.upstream import Received, Upstream

DIALECTS: tuple[Dialect, ...] = ("responses", "chat", "ollama", "messages")
SEARCH = ("file_search", {"queries": ["When is the lamp green?"]})


def searches(request: Received) -> Said:
    """Searches, then answers with a citation in two places."""
    if not outputs_of(request):
        return [SEARCH]
    return ["It is green when the valve is open【1】, as pump.md says."]


@asynccontextmanager
async def stage(
    directory: Path, dialect: Dialect, answer: Any = searches, **settings: Any
) -> AsyncIterator[tuple[AsyncOpenAI, Upstream, str, str]]:
    """A client, the endpoint, a vector store and the file in it."""
    async with Upstream(default=calling(dialect, answer)) as upstream:
        endpoint = {"name": "one", "dialect": dialect, "models": ["m"]}
        endpoint["url"] = upstream.address + ("" if dialect == "ollama" else "/v1")
        async with (
            searchable(directory, endpoint, **settings) as url,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="x", timeout=30, max_retries=0) as client,
        ):
            store = await client.vector_stores.create()
            file = await client.vector_stores.files.upload_and_poll(
                vector_store_id=store.id,
                file=("pump.md", b"The lamp is green when the valve is open."),
                attributes={"year": 2024},
                **FAST,
            )
            assert file.status == "completed", file.last_error
            yield client, upstream, store.id, file.id


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_model_searches_and_its_answer_cites(tmp_path: Path, dialect: Dialect) -> None:
    async with stage(tmp_path, dialect) as (client, upstream, store, file):
        answer = await client.responses.create(
            model="m",
            input="When is the lamp green?",
            tools=[{"type": "file_search", "vector_store_ids": [store]}],
            include=["file_search_call.results"],
        )
        call, message = answer.output
        assert call.type == "file_search_call"
        assert (call.status, call.queries) == ("completed", ["When is the lamp green?"])
        assert call.results is not None
        [result] = call.results
        assert (result.file_id, result.filename, result.attributes) == (
            file, "pump.md", {"year": 2024},
        )  # fmt: skip
        assert "valve is open" in (result.text or "")
        assert message.type == "message"
        [part] = message.content
        assert part.type == "output_text"
        assert part.text == "It is green when the valve is open, as pump.md says."
        shown = [
            (one.index, one.file_id, one.filename)
            for one in part.annotations
            if one.type == "file_citation"
        ]
        assert shown == [(34, file, "pump.md"), (46, file, "pump.md")]
        stored = await client.responses.retrieve(answer.id)
        assert stored.output_text == answer.output_text
        [told] = outputs_of(upstream.requests[-1])
        assert "【1】 pump.md\nThe lamp is green when the valve is open." in told


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_events_are_those_of_openai(tmp_path: Path, dialect: Dialect) -> None:
    async with stage(tmp_path, dialect) as (client, _, store, file):
        events = [
            event
            async for event in await client.responses.create(
                model="m",
                input="When is the lamp green?",
                tools=[{"type": "file_search", "vector_store_ids": [store]}],
                stream=True,
            )
        ]
        kinds = [event.type for event in events]
        begin = kinds.index("response.output_item.added")
        assert kinds[begin : begin + 5] == [
            "response.output_item.added",
            "response.file_search_call.in_progress",
            "response.file_search_call.searching",
            "response.file_search_call.completed",
            "response.output_item.done",
        ]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        assert text == "It is green when the valve is open, as pump.md says."
        [done] = [e.text for e in events if e.type == "response.output_text.done"]
        assert done == text
        added: list[Any] = [
            e.to_dict()["annotation"]
            for e in events
            if e.type == "response.output_text.annotation.added"
        ]
        assert [(one["index"], one["file_id"]) for one in added] == [(34, file), (46, file)]
        last = events[-1]
        assert last.type == "response.completed"
        call, message = last.response.output
        assert call.type == "file_search_call"
        assert call.results is None
        assert message.type == "message"
        part = message.content[0]
        assert part.type == "output_text"
        assert part.text == text
        assert [one.to_dict() for one in part.annotations] == added


async def test_filters_and_thresholds_hold(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat") as (client, _, store, _file):
        for options, found in (
            ({"filters": {"type": "eq", "key": "year", "value": 2023}}, 0),
            ({"filters": {"type": "gte", "key": "year", "value": 2024}}, 1),
            ({"ranking_options": {"score_threshold": 1.0}}, 0),
            ({"max_num_results": 1}, 1),
        ):
            tool: Any = {"type": "file_search", "vector_store_ids": [store], **options}
            answer = await client.responses.create(
                model="m", input="Go", tools=[tool], include=["file_search_call.results"]
            )
            call = answer.output[0]
            assert call.type == "file_search_call"
            assert len(call.results or ()) == found


async def test_a_native_endpoint_searches_in_stores_of_its_own(tmp_path: Path) -> None:
    async with stage(tmp_path, "responses", lambda request: ["Yes."]) as (client, upstream, *_):
        tool: Any = {"type": "file_search", "vector_store_ids": ["vs_elsewhere"]}
        await client.responses.create(model="m", input="Go", tools=[tool])
        assert upstream.requests[-1].json["tools"] == [tool]


async def test_what_is_wrong_with_the_tool_is_named(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat") as (client, upstream, store, _file):
        asked = len(upstream.requests)
        tool: Any = {"type": "file_search", "vector_store_ids": ["vs_none"]}
        with pytest.raises(NotFoundError) as unknown:
            await client.responses.create(model="m", input="Go", tools=[tool])
        assert unknown.value.param == "tools[0].vector_store_ids"
        for options, param in (
            ({"max_num_results": 51}, "tools[0].max_num_results"),
            ({"filters": {"type": "eq", "key": 1, "value": 1}}, "tools[0].filters.key"),
            ({"ranking_options": {"ranker": "x"}}, "tools[0].ranking_options.ranker"),
        ):
            tool = {"type": "file_search", "vector_store_ids": [store], **options}
            with pytest.raises(BadRequestError) as refused:
                await client.responses.create(model="m", input="Go", tools=[tool])
            assert refused.value.param == param
        assert len(upstream.requests) == asked


async def test_without_stores_the_model_is_told_so(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat") as (client, upstream, *_):
        tool: Any = {"type": "file_search"}
        answer = await client.responses.create(model="m", input="Go", tools=[tool])
        assert [item.type for item in answer.output] == ["file_search_call", "message"]
        assert outputs_of(upstream.requests[-1]) == ["There are no files to search."]


async def test_a_key_may_be_kept_from_it(tmp_path: Path) -> None:
    keys = {"keys": [{"name": "a", "key": "x" * 20, "tools": ["web_search"]}]}
    async with Upstream(default=calling("chat", searches)) as upstream:
        endpoint = {"name": "one", "dialect": "chat", "models": ["m"]}
        endpoint["url"] = upstream.address + "/v1"
        async with (
            searchable(tmp_path, endpoint, auth=keys) as url,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="x" * 20, max_retries=0) as client,
        ):
            store = await client.vector_stores.create()
            tool: Any = {"type": "file_search", "vector_store_ids": [store.id]}
            with pytest.raises(Exception, match="may not use the tool"):
                await client.responses.create(model="m", input="Go", tools=[tool])


async def test_a_later_turn_has_the_search_in_its_history(tmp_path: Path) -> None:
    async with stage(tmp_path, "chat") as (client, upstream, store, _file):
        tool: Any = {"type": "file_search", "vector_store_ids": [store]}
        first = await client.responses.create(model="m", input="Go", tools=[tool])
        await client.responses.create(
            model="m", input="And?", previous_response_id=first.id, tools=[tool]
        )
        assert asked_tools(upstream.requests[-1]) == ["file_search"]
        assert outputs_of(upstream.requests[-1])[0] == "(results not kept)"
