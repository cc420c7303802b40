"""Thinking: how much of it is asked for, how it is shown, and how it is known again.

A thinking block's ``signature`` is the mark below and the encrypted reasoning as the router seals
it (see ``dialects.responses.decode_stream``), where the endpoint has encrypted any. What was signed
by somebody else is of use to nobody here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from router.dialects.messages.fields import bad, given, need, one_of

__all__ = ["Show", "Thinking", "parse_thinking", "reasoning_item", "sign"]

Show = Literal["text", "signature", "nothing"]
"""What a client is shown of the reasoning: its text, only that there was some, or nothing."""

_MARK: Final = "pmm1."
_MIN_BUDGET: Final = 1024
_LITTLE: Final = 4096
_MUCH: Final = 16384
_KINDS: Final = ("enabled", "adaptive", "between_tools", "disabled")
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class Thinking:
    """``effort`` is None where the model is to decide, ``on`` where nothing is said of it."""

    effort: str | None = None
    show: Show = "nothing"
    on: bool | None = None


def parse_thinking(body: Mapping[str, Any], limit: int | None) -> Thinking:
    """What ``thinking`` and ``output_config.effort`` ask for; ``limit`` is ``max_tokens``.

    Without ``thinking`` nothing is shown of it: clients that do not ask for it read the first block
    as the answer.
    """
    output = given(body, "output_config", dict, "") or {}
    effort = given(output, "effort", str, "output_config")
    if effort is not None:
        one_of(effort, _EFFORTS, "output_config.effort")
    thinking = given(body, "thinking", dict, "")
    if thinking is None:
        return Thinking(effort)
    kind = one_of(need(thinking, "type", str, "thinking"), _KINDS, "thinking.type")
    if kind == "disabled":
        return Thinking(effort, on=False)
    if kind == "enabled":
        effort = effort or _effort_of(thinking, limit)
    display = given(thinking, "display", str, "thinking") or "summarized"
    one_of(display, ("summarized", "omitted"), "thinking.display")
    return Thinking(effort, "signature" if display == "omitted" else "text", on=True)


def _effort_of(thinking: Mapping[str, Any], limit: int | None) -> str:
    budget = need(thinking, "budget_tokens", int, "thinking")
    if budget < _MIN_BUDGET:
        raise bad(
            "thinking.budget_tokens", f"Input should be greater than or equal to {_MIN_BUDGET}"
        )
    if limit is not None and budget >= limit:
        raise bad("max_tokens", "Input should be greater than thinking.budget_tokens")
    if budget <= _LITTLE:
        return "low"
    return "medium" if budget <= _MUCH else "high"


def sign(encrypted: Any) -> str:
    """The signature of reasoning with this sealed encrypted content, if it has any."""
    return _MARK + (encrypted if isinstance(encrypted, str) else "")


def reasoning_item(text: str, signature: str) -> dict[str, Any] | None:
    """The reasoning that was shown as this text; None for what was not signed here."""
    if not signature.startswith(_MARK):
        return None
    summary = [{"type": "summary_text", "text": text}] if text else []
    item: dict[str, Any] = {"type": "reasoning", "summary": summary}
    if sealed := signature[len(_MARK) :]:
        item["encrypted_content"] = sealed
    return item if len(item) > 2 or text else None
