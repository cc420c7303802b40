"""LiteLLM as a client, unchanged; its pin of `openai` forbids it the tests' own environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.conftest import KEY
from tests.support.fleet import MODELS
from tests.support.guests import python_packages, said_by

SCRIPT = Path(__file__).parent / "guests" / "litellm_cases.py"
NINE = "1, 2, 3, 4, 5, 6, 7, 8, 9"


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter that has it."""
    return python_packages("litellm==1.106.2", "mcp")  # tools want mcp, undeclared


async def test_litellm_chats_streams_calls_a_tool_chains_and_embeds(
    python: Path, base_url: str
) -> None:
    env = {
        "BASE_URL": f"{base_url}/v1",
        "API_KEY": KEY,
        "MODELS": ",".join(MODELS.values()),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # nothing is fetched
        "LITELLM_TELEMETRY": "False",
    }
    told = await said_by(python, SCRIPT, env=env)
    assert sorted(told) == sorted(MODELS.values())
    for model, one in told.items():
        assert one["chat"] == "1, 2, 3"
        assert one["usage"] > 5
        assert "".join(one["stream"]) == NINE
        assert len(list(filter(None, one["stream"]))) > 3
        assert one["tool"] == ["get_weather", {"city": "Paris"}, "According to get_weather: sunny"]
        assert one["responses"] == ["Your name is Ann.", "response.created", "response.completed"]
        assert one["embeddings"] == (None if model == MODELS["messages"] else 2)
