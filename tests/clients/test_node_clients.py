"""The npm packages `openai` and `@ai-sdk/openai`, unchanged, in front of every dialect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import KEY
from tests.support.fleet import MODELS, OPENAI_STYLE
from tests.support.guests import node_packages, said_by

SOURCES = Path(__file__).parent / "node"
NINE = "1, 2, 3, 4, 5, 6, 7, 8, 9"
CLEAR = "According to get_weather: city is Paris, sky is clear."

Run = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="session")
def packages() -> Path:
    """Where the scripts and their packages are."""
    return node_packages(SOURCES)


@pytest.fixture
def run(packages: Path, base_url: str, model: str) -> Run:
    """Run a case of a script against the router."""
    env = {"BASE_URL": f"{base_url}/v1", "API_KEY": KEY, "MODEL": model}

    async def run(script: str, *arguments: str) -> Any:
        return await said_by("node", packages / script, *arguments, env=env)

    return run


API = pytest.mark.parametrize("api", ["responses", "chat"])
EMBED = pytest.mark.parametrize("model", [MODELS[dialect] for dialect in OPENAI_STYLE])


async def test_openai_creates_and_streams_a_response(run: Run) -> None:
    made, told = await run("openai.mjs", "create", "stream")
    assert made.pop("total") > 5
    assert made == {"text": "1, 2, 3", "status": "completed"}
    assert told.pop("pieces") > 3
    assert told == {"text": NINE, "final": NINE}


async def test_openai_chains_responses_and_calls_a_tool(run: Run) -> None:
    chained, called = await run("openai.mjs", "chain", "tool")
    assert chained == {"text": "Your name is Ann.", "previous": True}
    assert called["name"] == "get_weather"
    assert "sky is clear" in called["text"]


async def test_openai_parses_structured_answers(run: Run) -> None:
    for person in await run("openai.mjs", "parse", "chat_parse"):
        assert isinstance(person["name"], str)
        assert person["age"] == 33


async def test_openai_chats(run: Run) -> None:
    made, told, ran = await run("openai.mjs", "chat", "chat_stream", "chat_tool")
    assert made.pop("total") > 5
    assert made == {"text": "1, 2, 3"}
    assert told.pop("pieces") > 3
    assert told.pop("total") > 5
    assert told == {"text": NINE, "final": NINE}
    assert ran == {"called": ["Paris"], "text": CLEAR}


@EMBED
async def test_openai_embeds_and_is_told_what_is_wrong(run: Run) -> None:
    made, wrong = await run("openai.mjs", "embeddings", "errors")
    assert made["count"] == 2
    assert made["gap"] < 1e-6
    assert wrong == {"kind": "NotFoundError", "status": 404, "code": "model_not_found"}


@API
async def test_the_ai_sdk_generates_and_streams_text(run: Run, api: str) -> None:
    made, told = await run("ai_sdk.mjs", api, "generate", "stream")
    assert made.pop("total") > 5
    assert made == {"text": "1, 2, 3", "reason": "stop"}
    assert told.pop("pieces") > 3
    assert told.pop("total") > 5
    assert told == {"failures": [], "text": NINE, "reason": "stop"}


@API
async def test_the_ai_sdk_calls_a_tool_and_goes_on(run: Run, api: str) -> None:
    made, told = await run("ai_sdk.mjs", api, "tool", "stream_tool")
    expected = {"called": ["Paris"], "text": CLEAR, "steps": 2}
    assert made == expected
    assert told == {"failures": [], **expected}


@API
async def test_the_ai_sdk_sends_its_history_and_generates_an_object(run: Run, api: str) -> None:
    told, person = await run("ai_sdk.mjs", api, "history", "object")
    assert told == {"text": "Your name is Ann."}
    assert isinstance(person["name"], str)
    assert person["age"] == 33


@EMBED
async def test_the_ai_sdk_chains_responses_and_embeds(run: Run) -> None:
    chained, made = await run("ai_sdk.mjs", "responses", "chain", "embeddings")
    assert chained == {"text": "Your name is Ann."}
    assert made["count"] == 2
    assert made["same"] > 1
