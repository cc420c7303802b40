"""The entries of Codex' catalogue."""

from __future__ import annotations

from typing import Any

import pytest

from router.balance.capability import Abilities, Feature
from router.dialects.responses.codex_models import codex_model

REQUIRED = {
    "slug": str, "display_name": str, "supported_reasoning_levels": list, "shell_type": str,
    "visibility": str, "supported_in_api": bool, "priority": int, "base_instructions": str,
    "support_verbosity": bool, "truncation_policy": dict, "experimental_supported_tools": list,
    "supports_reasoning_summaries": bool, "supports_parallel_tool_calls": bool,
}  # fmt: skip
"""Without any of these some version of Codex drops the whole list: the last two are of early ones,
the others were left out one by one in front of 0.169.
"""


@pytest.mark.parametrize("abilities", [(), (Abilities(),), (Abilities(~Feature(0), 4096),)])
def test_nothing_is_missing(abilities: tuple[Abilities, ...]) -> None:
    entry = codex_model("m", 3, abilities)
    assert {name: type(entry[name]) for name in REQUIRED} == REQUIRED
    assert (entry["slug"], entry["priority"], entry["upgrade"]) == ("m", 3, None)
    assert entry["base_instructions"].strip()


@pytest.mark.parametrize(
    ("context", "limit", "kept"),
    [
        (4096, 3072, 1000),
        (32_768, 24_576, 4096),
        (131_072, 114_688, 10_000),
        (400_000, 360_000, 10_000),
    ],
)
def test_a_history_is_compacted_while_there_is_room(context: int, limit: int, kept: int) -> None:
    entry = codex_model("m", 0, [Abilities(context=context), Abilities(), Abilities(context=9)])
    assert entry["context_window"] == context
    assert entry["auto_compact_token_limit"] == limit
    assert entry["truncation_policy"] == {"mode": "tokens", "limit": kept}


def test_an_unknown_context_is_left_out() -> None:
    entry = codex_model("m", 0, [Abilities()])
    assert "context_window" not in entry
    assert "auto_compact_token_limit" not in entry
    assert entry["truncation_policy"]["limit"] == 10_000


@pytest.mark.parametrize(
    ("lacks", "field", "lacking", "having"),
    [
        (Feature.VISION, "input_modalities", ["text"], ["text", "image"]),
        (Feature.TOOLS, "apply_patch_tool_type", None, "freeform"),
        (Feature.TOOLS, "supports_parallel_tool_calls", False, True),
        (Feature.REASONING, "supports_reasoning_summaries", False, True),
    ],
)
def test_it_can_what_one_endpoint_can(
    lacks: Feature, field: str, lacking: Any, having: Any
) -> None:
    assert codex_model("m", 0, [Abilities(lacks)])[field] == lacking
    assert codex_model("m", 0, [Abilities(lacks), Abilities()])[field] == having


def test_efforts_are_offered_unless_they_are_refused() -> None:
    def efforts(*abilities: Abilities) -> tuple[list[str], str | None]:
        entry = codex_model("m", 0, abilities)
        levels = [level["effort"] for level in entry["supported_reasoning_levels"]]
        return levels, entry.get("default_reasoning_level")

    every = ["low", "medium", "high"]
    assert efforts(Abilities()) == (every, None)
    assert efforts(Abilities(has=Feature.REASONING)) == (every, "medium")
    assert efforts(Abilities(Feature.REASONING)) == ([], None)
