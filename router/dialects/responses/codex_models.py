"""Models as Codex reads them from ``GET /models?client_version=…``.

The form is that of ``ModelInfo`` in Codex' ``protocol/src/openai_models.rs``. A list in which one
model lacks a field that this version of Codex needs is dropped whole, without a word, so every
field is there that any version needs (tried with 0.169; earlier ones need
``supports_parallel_tool_calls``, ``supports_reasoning_summaries``, ``upgrade`` and others beside).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from router.balance.capability import ALL_FEATURES, NO_FEATURES, Abilities, Feature
from router.dialects.responses.codex_instructions import BASE_INSTRUCTIONS

__all__ = ["codex_model"]

_EFFORTS: Final = [
    {"effort": "low", "description": "Less reasoning, quicker answers"},
    {"effort": "medium", "description": "A balance of reasoning and speed"},
    {"effort": "high", "description": "More reasoning for harder tasks"},
]
_DEFAULT_EFFORT: Final = "medium"

_MOST_TOOL_OUTPUT: Final = 10_000
_LEAST_TOOL_OUTPUT: Final = 1000
"""Tokens of a tool's output that are kept in the history: Codex' own number, and a floor."""

_HEADROOM: Final = 16_384
"""Tokens that stay free for an answer and the last tool's output when a history is compacted."""

_EFFECTIVE_PERCENT: Final = 95


def codex_model(name: str, priority: int, abilities: Sequence[Abilities]) -> dict[str, Any]:
    """The entry of one model; ``abilities`` are those at each endpoint that serves it.

    ``priority`` is its place in the list, 0 first. The model can do what one of its endpoints can,
    and its context is the largest that is known: requests go where they fit. An unknown context is
    left out, so that Codex compacts nothing by itself.
    """
    lacks, has = ALL_FEATURES if abilities else NO_FEATURES, NO_FEATURES
    for one in abilities:
        lacks, has = lacks & one.lacks, has | one.has
    context = max((one.context for one in abilities if one.context is not None), default=None)
    reasons = not lacks & Feature.REASONING
    entry = {
        "slug": name,
        "display_name": name,
        "description": None,
        "supported_reasoning_levels": _EFFORTS if reasons else [],
        "shell_type": "shell_command",
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "availability_nux": None,
        "upgrade": None,
        "base_instructions": BASE_INSTRUCTIONS,
        "supports_reasoning_summaries": reasons,
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": None if lacks & Feature.TOOLS else "freeform",
        "truncation_policy": {"mode": "tokens", "limit": _tool_output(context)},
        "supports_parallel_tool_calls": not lacks & Feature.TOOLS,
        "effective_context_window_percent": _EFFECTIVE_PERCENT,
        "experimental_supported_tools": [],
        "input_modalities": ["text"] if lacks & Feature.VISION else ["text", "image"],
    }
    if has & Feature.REASONING and reasons:
        entry["default_reasoning_level"] = _DEFAULT_EFFORT
    if context is not None:
        entry["context_window"] = context
        entry["auto_compact_token_limit"] = context - max(
            context // 10, min(context // 4, _HEADROOM)
        )
    return entry


def _tool_output(context: int | None) -> int:
    if context is None:
        return _MOST_TOOL_OUTPUT
    return min(_MOST_TOOL_OUTPUT, max(_LEAST_TOOL_OUTPUT, context // 8))
