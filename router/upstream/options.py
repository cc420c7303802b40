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


def unsent_notes(unsent: tuple[str, ...]) -> dict[str, str]:
    """The header that names what was accepted but not sent to the endpoint."""
    return {"X-Switchyard-Unsent": ", ".join(unsent)} if unsent else {}
