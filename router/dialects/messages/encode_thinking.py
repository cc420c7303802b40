"""``reasoning`` as Anthropic's ``thinking`` and ``output_config.effort``.

How a model is told is known by its name, or set (``EndpointSettings.thinking``). Thinking and a
function that must be called exclude each other, and a budget has to fit into ``max_tokens``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.messages.claude import ModelTraits
from router.settings.schema import EndpointSettings

__all__ = ["ThinkingPlan", "plan_thinking"]

_LEAST: Final = 1024
"""The smallest budget there is."""

_BUDGETS: Final[Mapping[str, int]] = {
    "minimal": _LEAST,
    "low": 4096,
    "medium": 10_000,
    "high": 24_576,
    "xhigh": 32_768,
    "max": 60_000,
}
_SHARE: Final = 0.75
"""At most so much of an answer's tokens are for thinking."""

_EFFORT: Final = "reasoning.effort"


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """``thinking`` and ``effort`` as they are sent; ``dropped`` is what has no effect."""

    thinking: dict[str, Any] | None = None
    effort: str | None = None
    dropped: tuple[str, ...] = ()

    @property
    def thinks(self) -> bool:
        """Whether it is told to think."""
        return self.thinking is not None and self.thinking["type"] != "disabled"


def plan_thinking(
    body: Mapping[str, Any],
    settings: EndpointSettings,
    traits: ModelTraits,
    messages: Sequence[Mapping[str, Any]],
    limit: int,
    *,
    forced: bool,
) -> ThinkingPlan:
    """The plan for a validated body. ``limit`` is ``max_tokens``; ``forced``: a function has to be
    called.
    """
    reasoning = body.get("reasoning") or {}
    effort, shown = reasoning.get("effort"), reasoning.get("summary")
    mode = traits.thinking if settings.thinking == "auto" else settings.thinking
    if effort is None and (shown is None or mode != "adaptive"):
        return ThinkingPlan()
    if mode == "off":
        return ThinkingPlan(dropped=(_EFFORT,) if effort != "none" else ())
    if effort == "none":
        return ThinkingPlan({"type": "disabled"})
    if mode == "adaptive":
        level = (traits.efforts or {}).get(effort or "")
        thinking = None if forced else {"type": "adaptive", "display": "summarized"}
        return ThinkingPlan(thinking, level)
    if forced or limit <= _LEAST or _calls_without_thinking(messages):
        return ThinkingPlan(dropped=(_EFFORT,))
    budget = max(_LEAST, min(_BUDGETS[str(effort)], int(limit * _SHARE)))
    return ThinkingPlan({"type": "enabled", "budget_tokens": budget})


def _calls_without_thinking(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the calls that are answered at the end were made without thinking: another endpoint
    made them, perhaps. With a budget Anthropic refuses to go on thinking then.
    """
    last = messages[-1]["content"]
    if messages[-1]["role"] != "user" or last[0]["type"] != "tool_result" or len(messages) < 2:
        return False
    return bool(messages[-2]["content"][0]["type"] not in ("thinking", "redacted_thinking"))
