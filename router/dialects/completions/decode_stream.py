"""Legacy completions, passed on to their clients: a text instead of a message."""

from __future__ import annotations

from typing import Any, Final

from router.dialects.chat.passthrough import ChatPassthrough
from router.response.frame import Frame
from router.response.tokens import prompts

__all__ = ["CompletionPassthrough"]

_MOST_CHOICES: Final = 1 << 20


class CompletionPassthrough(ChatPassthrough):
    """A ``StreamDecoder`` that changes nothing but the model's name, and leaves out the usage chunk
    nobody asked for.

    ``body`` is the request: each of its prompts has ``n`` choices, which may come one after the
    other. ``assembles`` is as for ``ChatPassthrough``.
    """

    what = "a completion"

    def __init__(
        self, body: dict[str, Any], *, model: str, wants_usage: bool, assembles: bool = False
    ) -> None:
        super().__init__(model=model, wants_usage=wants_usage, assembles=assembles)
        n = body.get("n")
        choices = prompts(body) * (n if type(n) is int and n > 0 else 1)
        self._choices = min(choices, _MOST_CHOICES)

    def salvage(self) -> list[Frame]:
        """See ``StreamDecoder.salvage``."""
        return super().salvage() if sum(self._finished.values()) >= self._choices else []

    def says_something(self, choice: Any) -> bool:
        """See ``ChatPassthrough.says_something``."""
        if not isinstance(choice, dict):
            return False
        return bool(choice.get("text") or choice.get("finish_reason"))

    def text_in(self, choice: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
        """See ``ChatPassthrough.text_in``."""
        return (choice, "text") if choice.get("text") and type(choice["text"]) is str else None

    def chars(self, choice: dict[str, Any]) -> int:
        """See ``ChatPassthrough.chars``."""
        text = choice.get("text")
        return len(text) if isinstance(text, str) else 0
