"""Which tools a search by words finds, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.tools.tool_search.catalogue import FOUND_AT_MOST, ToolCatalogue
from tests.support.reading import FUZZ


def tool(name: str, description: str = "", **arguments: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


NESTED = {
    "type": "function",
    "name": "create_event",
    "parameters": {
        "type": "object",
        "properties": {
            "guests": {
                "type": "array",
                "items": {"properties": {"mailbox": {"description": "Where invitations go"}}},
            }
        },
    },
}
TOOLS = [
    tool("get_weather", "Get the current weather in a location", location="City or place"),
    tool("slackSendMessage", "Post to a channel", channel="Where to"),
    tool("search_files", "Find files in the workspace by their content", query="Text"),
    tool("list_pull_requests", "The open pull requests of a repository", repo="owner/name"),
    tool("forecast", "Tomorrow in a place, from the weather service", days="How many"),
    NESTED,
]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("weather", ["get_weather", "forecast"]),
        ("slack", ["slackSendMessage"]),
        ("send MESSAGES", ["slackSendMessage"]),
        ("repositories", ["list_pull_requests"]),
        ("file", ["search_files"]),
        ("owner", ["list_pull_requests"]),
        ("mailbox", ["create_event"]),
        ("invitation", ["create_event"]),
        ("quantum", []),
        ("", []),
        ("…", []),
    ],
)
def test_by_words(query: str, names: list[str]) -> None:
    assert ToolCatalogue(TOOLS).by_words(query) == names


def test_the_words_that_say_most_come_first() -> None:
    """A whole question has words that are in every description."""
    found = ToolCatalogue(TOOLS).by_words("what will the weather be in this place")
    assert found[:2] == ["get_weather", "forecast"]


def test_no_more_than_a_few() -> None:
    many = [tool(f"weather_{n}", "Weather") for n in range(50)]
    found = ToolCatalogue(many).by_words("weather")
    assert found == [f"weather_{n}" for n in range(FOUND_AT_MOST)]
    assert ToolCatalogue([]).by_words("weather") == []


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["properties", "items", "description", "a"]), inner)
    ),
    max_leaves=12,
)


@FUZZ
@given(ODD, ODD, st.text(max_size=20))
def test_whatever_a_client_describes(parameters: Any, description: Any, query: str) -> None:
    odd = {"name": "odd_one", "description": description, "parameters": parameters}
    catalogue = ToolCatalogue([odd, *TOOLS])
    found = catalogue.by_words(query)
    assert len(set(found)) == len(found) <= FOUND_AT_MOST
    assert set(found) <= set(catalogue.functions)
    assert "odd_one" in catalogue.by_words("odd")
