"""The simulated Messages over real sockets: tools that the model sees only once they are found, and
documents that it cites.
"""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from tests.simulate.conftest import Start

VERSION = {"anthropic-version": "2023-06-01"}
SEARCH = {"name": "search", "input_schema": {"type": "object"}}
LATER = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    "defer_loading": True,
}


def searched(*names: str) -> list[Any]:
    """A search with a tool of the client's, and what it found."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}}
    found = [{"type": "tool_reference", "tool_name": name} for name in names]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": found}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


async def asked(
    http: aiohttp.ClientSession, url: str, *messages: Any, **fields: Any
) -> tuple[int, Any]:
    said = [{"role": "user", "content": "The weather in Paris?"}, *messages]
    body = {"model": "m", "max_tokens": 50, "messages": said, **fields}
    async with http.post(f"{url}/v1/messages", json=body, headers=VERSION) as answer:
        return answer.status, await answer.json()


async def test_a_deferred_tool_is_seen_once_it_is_found(
    start: Start, http: aiohttp.ClientSession
) -> None:
    url = await start("messages", "m")
    counts = []
    for tools, more in (
        ([SEARCH], []),
        ([SEARCH, LATER], []),
        ([SEARCH, LATER], searched("get_weather")),
        ([SEARCH], searched()),
    ):
        status, answer = await asked(http, url, *more, tools=tools)
        assert status == 200, answer
        counts.append(answer["usage"]["input_tokens"])
    assert counts[0] == counts[1]
    assert counts[2] > counts[3]


@pytest.mark.parametrize(
    ("tools", "found", "wrong"),
    [
        ([SEARCH], ["get_weather"], "Tool reference 'get_weather' not found in available tools"),
        ([LATER], [], "At least one tool must have defer_loading=false."),
    ],
)
async def test_what_the_original_refuses(
    start: Start, http: aiohttp.ClientSession, tools: list[Any], found: list[str], wrong: str
) -> None:
    url = await start("messages", "m")
    status, answer = await asked(http, url, *searched(*found), tools=tools)
    assert status == 400
    assert answer["error"] == {"type": "invalid_request_error", "message": wrong}


def document(title: str | None = None, **fields: Any) -> dict[str, Any]:
    source = {"type": "url", "url": "https://a.example/a.pdf"}
    return {"type": "document", "source": source, "title": title, **fields}


CITABLE: dict[str, Any] = {"citations": {"enabled": True}}


async def test_what_may_be_cited_is(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start("messages", "m")
    call = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}}
    found = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [document("b", **CITABLE)]}
    said = [
        {"role": "user", "content": [document("a", **CITABLE), {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [found]},
    ]
    status, answer = await asked(http, url, *said, tools=[SEARCH])
    assert status == 200, answer
    cited = [
        (one["document_index"], one["document_title"])
        for block in answer["content"]
        for one in block.get("citations", ())
    ]
    assert cited == [(0, "a"), (1, "b")]
    status, answer = await asked(http, url, {"role": "user", "content": [document()]})
    assert "citations" not in str(answer["content"])


@pytest.mark.parametrize(
    ("documents", "fields", "wrong"),
    [
        ([document(**CITABLE), document()], {}, "for all documents or for none"),
        (
            [document(**CITABLE)],
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            "cannot be enabled beside it",
        ),
    ],
)
async def test_what_cannot_be_cited(
    start: Start, http: aiohttp.ClientSession, documents: list[Any], fields: Any, wrong: str
) -> None:
    url = await start("messages", "m")
    status, answer = await asked(http, url, {"role": "user", "content": documents}, **fields)
    assert status == 400
    assert wrong in answer["error"]["message"]
