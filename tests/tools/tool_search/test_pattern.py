"""Search by a regular expression, which may be anything that a model writes."""

from __future__ import annotations

import pytest

from router.tools.tool_search.catalogue import ToolText
from router.tools.tool_search.pattern import (
    MAX_PATTERN,
    PatternInvalid,
    PatternTooSlow,
    by_pattern,
)

TEXTS = [
    ToolText("report", "Uses weather data", "city"),
    ToolText("get_weather", "Get it", "city\nThe place"),
    ToolText("get_order_data", "Orders", "Weather"),
    ToolText("Slack", "", ""),
]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("weather", ["get_weather", "report"]),
        ("(?i)weather", ["get_weather", "report", "get_order_data"]),
        ("get_.*_data", ["get_order_data"]),
        ("slack|nothing", []),
        ("(?i)slack", ["Slack"]),
        ("^city$", ["report"]),
        (".", ["report", "get_weather"]),
    ],
)
async def test_what_is_found(pattern: str, names: list[str]) -> None:
    assert await by_pattern(pattern, TEXTS, 3 if pattern != "." else 2) == names


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a" * (MAX_PATTERN + 1), "a{99999999999999}"])
async def test_what_is_no_expression(pattern: str) -> None:
    with pytest.raises(PatternInvalid):
        await by_pattern(pattern, TEXTS)


async def test_what_would_take_years() -> None:
    endless = [ToolText("a" * 60, "", "")]
    with pytest.raises(PatternTooSlow):
        await by_pattern("(a|a)*(a|a)*b", endless)
