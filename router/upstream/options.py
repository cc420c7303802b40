"""What of a Responses request a translated answer has to know, and what its client is told."""

from __future__ import annotations

from typing import Any

from router.translate.chat_request import wants_logprobs
from router.translate.machine import MachineOptions
from router.translate.tools import custom_tool_names

__all__ = ["machine_options", "unsent_notes"]


def machine_options(body: dict[str, Any], *, forced_call: bool = False) -> MachineOptions:
    """The options for reading the answer to this request."""
    return MachineOptions(
        custom_tools=custom_tool_names(body),
        forced_call=forced_call,
        logprobs=wants_logprobs(body),
        request=body,
    )


def unsent_notes(body: dict[str, Any], unsent: tuple[str, ...]) -> dict[str, str]:
    """The headers that say what was accepted but not sent to a translated endpoint: the names in
    ``unsent``, and encrypted reasoning, which only the account that issued it can read.
    """
    notes = {"X-Switchyard-Unsent": ", ".join(unsent)} if unsent else {}
    items = body.get("input")
    if isinstance(items, list) and (lost := sum(_is_encrypted(item) for item in items)):
        notes["X-Switchyard-Reasoning-Dropped"] = str(lost)
    return notes


def _is_encrypted(item: dict[str, Any]) -> bool:
    return item.get("type") == "reasoning" and bool(item.get("encrypted_content"))
