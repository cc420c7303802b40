"""A request that is longer than a model's context, in Anthropic's words.

Clients know it by nothing but these words. At ``prompt is too long: N tokens > M maximum`` Claude
Code compacts its history, at ``input length and `max_tokens` exceed context limit: N + O > M`` it
asks again with a smaller ``max_tokens``. Engines and providers have words of their own, most of
them with the numbers.
"""

from __future__ import annotations

import re
from typing import Final

from router.balance.overflow import stated_context, without_quotations

__all__ = ["overflow_message"]

_N: Final = r"\(?(\d{1,12})"

_PROMPT: Final = re.compile(
    # OpenAI, vLLM, SGLang
    rf"{_N} in (?:the )?(?:messages|prompt)"
    rf"|messages (?:and functions )?resulted in {_N} tokens"
    # vLLM
    rf"|(?:request has|prompt contains(?: at least)?|contains at least) {_N} (?:input )?tokens"
    rf"|passed {_N} input tokens"
    # llama.cpp
    rf"|\brequest {_N} tokens\)? exceeds"
    # The router, Mistral, Anthropic
    rf"|has (?:about )?{_N} tokens"
    rf"|prompt is too long: {_N} tokens"
    rf"|prompt token count of {_N}"
    # SGLang
    rf"|input (?:length )?{_N} tokens\)? is longer",
    re.IGNORECASE,
)
_OUTPUT: Final = re.compile(
    rf"{_N} in the completion"
    rf"|tokens' is too large: {_N}"
    rf"|requested {_N} output tokens",
    re.IGNORECASE,
)
_TOTAL: Final = re.compile(rf"you requested(?: about)? {_N} tokens", re.IGNORECASE)
_LARGEST: Final = re.compile(rf"the largest context for '[^']*' is {_N}")
"""The router's own words."""
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def overflow_message(message: str) -> str:
    """An endpoint's words, or the router's, for a request that is too long, in Anthropic's."""
    text = _THOUSANDS.sub("", without_quotations(message))
    context, prompt = stated_context(text) or _number(_LARGEST, text), _number(_PROMPT, text)
    # vLLM puts a field's name in quotation marks, which is no client's text.
    output, total = _number(_OUTPUT, _THOUSANDS.sub("", message)), _number(_TOTAL, text)
    if prompt is None and total is not None:
        prompt = total - (output or 0)
    if context is None or prompt is None:
        return f"prompt is too long: {message}"
    if prompt < context and output is not None:
        return (
            f"input length and `max_tokens` exceed context limit: {prompt} + {output} > {context}, "
            f"decrease input length or `max_tokens` and try again ({message})"
        )
    return f"prompt is too long: {prompt} tokens > {context} maximum ({message})"


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(next(n for n in found.groups() if n is not None)) if found else None
