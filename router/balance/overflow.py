"""How engines and providers say that a request does not fit into a model's context.

Endpoints repeat what clients sent: quoted texts of more than two words are not considered.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["CONTEXT_EXCEEDED", "exceeds_context", "stated_context", "without_quotations"]

CONTEXT_EXCEEDED: Final = "context_length_exceeded"
"""OpenAI's code for it, by which agents know that they have to compact their history."""

_MAX_MESSAGE: Final = 1000
_LEAST_CONTEXT: Final = 512
_MOST_CONTEXT: Final = 10**8

_QUOTED: Final = re.compile(r"""(?<!\w)(?:'[^']*'|"[^"]*"|`[^`]*`)(?!\w)""")
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_N: Final = r"(\d{1,15})"

_STATED: Final = _any_of(
    # vLLM, OpenAI, DeepSeek, OpenRouter, SGLang, xAI
    rf"maximum (?:context|model|prompt) length (?:of |is )?\(?{_N}",
    # llama.cpp, ds4
    rf"(?:available|configured) context size (?:is )?\(?{_N}",
    # Together, SGLang
    rf"model's context length \(?{_N}",
    # vLLM, LM Studio
    rf"context length (?:of|is) only {_N}",
    rf"n_keep: \d+ ?>= n_ctx: {_N}",
    # Mistral
    rf"too large for model with {_N} maximum context length",
    # Text Generation Inference
    rf"inputs`? tokens \+ `?max_new_tokens`? must be <= {_N}",
    rf"inputs`? must have less than {_N} tokens",
    # Anthropic
    rf"prompt is too long: \d+ tokens > {_N} maximum",
    rf"exceed context limit: \d+ \+ \d+ > {_N}",
    # Gemini
    rf"maximum number of tokens allowed \(?{_N}",
    # transformers
    rf"longer than the specified maximum sequence length for this model \(\d+ > {_N}\)",
    # llama-cpp-python
    rf"exceed context window of {_N}",
    # OpenAI, Copilot, Poolside, Kimi, DashScope
    rf"input tokens exceed the configured limit of {_N} tokens",
    rf"prompt token count of \d+ exceeds the limit of {_N}",
    rf"maximum allowed (?:input )?length (?:of )?\(?{_N}",
    rf"exceeded model token limit: {_N}",
    rf"range of input length should be \[\d+, ?{_N}\]",
)
"""Wordings that state the context in tokens."""

_SAID: Final = _any_of(
    # llama.cpp
    r"exceeds? the available context size",
    r"context size has been exceeded",
    # LiteLLM, whichever provider it speaks for
    r"ContextWindowExceededError",
    # SGLang, vLLM, and LiteLLM for them
    r"longer than the (?:maximum model length|model's context length)",
    r"exceeds? (?:the )?(?:model's )?(?:max(?:imum)? )?context (?:length|window|limit)\b",
    # Ollama
    r"prompt too long; exceeded (?:max )?context length",
    # transformers
    r"input length of \w+ is \d+, but `max_length` is set to \d+",
)
"""Wordings without a number, or with one that is not the context."""

_CODES: Final = frozenset(
    {CONTEXT_EXCEEDED, "exceed_context_size_error", "model_context_window_exceeded"}
)
"""Codes and types of errors: OpenAI's, llama.cpp's, Z.ai's."""

_OF_TEXT: Final = re.compile(
    r"(?:input|messages|prompt|max(?:_\w+)?_tokens|max_length|model|none)\b|input_tokens",
    re.IGNORECASE,
)
"""What an overflow may be blamed on; LiteLLM writes ``None`` for nothing."""


def without_quotations(message: str) -> str:
    """A message, shortened, without the longer texts in it that may be a client's own."""
    return _QUOTED.sub(_short_only, message[:_MAX_MESSAGE].strip())


def stated_context(text: str) -> int | None:
    """The context in tokens that a message ``without_quotations`` states; None where none is."""
    found = _STATED.search(_THOUSANDS.sub("", text))
    if found is None:
        return None
    tokens = int(next(number for number in found.groups() if number is not None))
    return tokens if _LEAST_CONTEXT <= tokens <= _MOST_CONTEXT else None


def exceeds_context(code: str | None, kind: str | None, param: str | None, message: str) -> bool:
    """Whether an error of this code, type and message says that the request is too long.

    One that names another field than those for text and for limits says something else.
    """
    if code in _CODES or kind in _CODES:
        return True
    if param and not _OF_TEXT.match(param):
        return False
    text = without_quotations(message)
    return _SAID.search(text) is not None or _STATED.search(_THOUSANDS.sub("", text)) is not None


def _short_only(quoted: re.Match[str]) -> str:
    return "''" if quoted[0].count(" ") > 1 else quoted[0]
