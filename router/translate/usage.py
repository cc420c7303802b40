"""Token counts, brought to the form of the Responses API."""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "estimate_tokens",
    "estimated_usage",
    "from_chat",
    "from_ollama",
    "prompt_chars",
    "response_usage",
]

_CHARS_PER_TOKEN: Final = 4
_NOT_TEXT: Final = frozenset({"id", "type", "role", "status", "encrypted_content", "file_data"})
_PROMPT: Final = ("instructions", "input", "tools", "messages")


def response_usage(
    input_tokens: int, output_tokens: int, *, cached: int = 0, reasoning: int = 0
) -> dict[str, Any]:
    """A Responses ``usage`` object."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input_tokens + output_tokens,
    }


def from_chat(usage: dict[str, Any]) -> dict[str, Any]:
    """The ``usage`` of a chat completion, as a Responses ``usage``."""
    inputs = usage.get("prompt_tokens_details") or {}
    outputs = usage.get("completion_tokens_details") or {}
    return response_usage(
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
        cached=_count(inputs.get("cached_tokens") if isinstance(inputs, dict) else 0),
        reasoning=_count(outputs.get("reasoning_tokens") if isinstance(outputs, dict) else 0),
    )


def from_ollama(line: dict[str, Any]) -> dict[str, Any] | None:
    """The counts of Ollama's last line; None when it has none.

    Ollama leaves ``prompt_eval_count`` out when the whole prompt was cached.
    """
    if "eval_count" not in line and "prompt_eval_count" not in line:
        return None
    return response_usage(_count(line.get("prompt_eval_count")), _count(line.get("eval_count")))


def estimate_tokens(chars: int) -> int:
    """A rough count for text nobody counted: four characters to a token, rounded up."""
    return -(-chars // _CHARS_PER_TOKEN)


def estimated_usage(input_chars: int, items: list[dict[str, Any]]) -> dict[str, Any]:
    """What an answer without usage is taken to have cost, marked ``estimated``."""
    chars = 0
    for item in items:
        chars += len(item.get("arguments") or item.get("input") or "")
        for part in (*item.get("content", ()), *item.get("summary", ())):
            chars += len(part.get("text") or part.get("refusal") or "")
    usage = response_usage(estimate_tokens(input_chars), estimate_tokens(chars))
    usage["estimated"] = True
    return usage


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def prompt_chars(body: dict[str, Any]) -> int:
    """The characters of text in a request; images and files sent as data do not count."""
    return sum(_chars(body.get(name)) for name in _PROMPT)


def _chars(value: Any) -> int:
    if isinstance(value, str):
        return 0 if value.startswith("data:") else len(value)
    if isinstance(value, dict):
        return sum(_chars(v) for k, v in value.items() if k not in _NOT_TEXT)
    if isinstance(value, list):
        return sum(_chars(v) for v in value)
    return 0
