"""Where a prompt is marked for Anthropic's cache, which keeps nothing unasked.

Marks cost a quarter of what they cover the first time, and save nine tenths from then on. They are
put where the same is bound to come again: at the end of the tools and of the system prompt, and,
in a conversation that goes on (it has tools, an answer, or a ``prompt_cache_key``), at the end of
the user's last two messages. Anthropic ignores marks of prompts that are too short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["add_breakpoints"]

_UNMARKED: Final = frozenset({"thinking", "redacted_thinking"})
_LATEST: Final = 2
"""Messages of the user that are marked; with tools and system that makes the four there may be."""


def add_breakpoints(sent: dict[str, Any], body: Mapping[str, Any]) -> None:
    """Mark ``sent``, the encoded request for ``body``. What is marked is copied."""
    mark: dict[str, str] = {"type": "ephemeral"}
    if body.get("prompt_cache_retention") == "24h":
        mark["ttl"] = "1h"
    for name in ("tools", "system"):
        if sent.get(name):
            _mark_last(sent, name, mark)
    messages = sent["messages"]
    goes_on = "tools" in sent or len(messages) > 1 or body.get("prompt_cache_key")
    if goes_on:
        for message in [one for one in messages if one["role"] == "user"][-_LATEST:]:
            _mark_last(message, "content", mark)


def _mark_last(holder: dict[str, Any], name: str, mark: Mapping[str, str]) -> None:
    last = holder[name][-1]
    if last.get("type") not in _UNMARKED:
        holder[name] = [*holder[name][:-1], {**last, "cache_control": dict(mark)}]
