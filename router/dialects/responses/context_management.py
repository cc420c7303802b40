"""``context_management`` of a Responses request, as far as it is about compacting.

[{"type": "compaction", "compact_threshold": 100000}]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.parameters import integer

__all__ = ["CompactionEntry", "compaction_entry"]

_LEAST: Final = 1000
"""Tokens; OpenAI's bound."""

_THRESHOLD: Final = integer(_LEAST)


@dataclass(frozen=True, slots=True)
class CompactionEntry:
    """The entry; ``threshold`` is in tokens, None where it is left to whoever compacts."""

    threshold: int | None

    def without(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body without what has been read of it."""
        others = [one for one in body["context_management"] if not _is_compaction(one)]
        rest = {name: value for name, value in body.items() if name != "context_management"}
        return {**rest, "context_management": others} if others else rest


def compaction_entry(body: Mapping[str, Any]) -> CompactionEntry | None:
    """The first entry for compacting; None where there is none.

    Raises InvalidRequest for a threshold that is none.
    """
    entries = body.get("context_management")
    if not isinstance(entries, list):
        return None
    for index, entry in enumerate(entries):
        if _is_compaction(entry):
            threshold = entry.get("compact_threshold")
            if threshold is not None:
                _THRESHOLD(threshold, f"context_management[{index}].compact_threshold")
            return CompactionEntry(threshold)
    return None


def _is_compaction(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("type") == "compaction"
