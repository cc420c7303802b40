"""What an endpoint's refusal teaches about its model: a feature that it lacks, or its context.

A wrong lesson takes an endpoint away from a model's requests, so only what says in so many words
that the model (not this value, this schema, or this combination) is at fault teaches anything.
Endpoints repeat what clients sent: quoted texts of more than two words are not listened to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from router.balance.capability import Abilities, Feature

__all__ = ["lesson"]

_MAX_MESSAGE: Final = 1000
_LEAST_CONTEXT: Final = 512
_MOST_CONTEXT: Final = 10**8

_OF_THE_MOMENT: Final = frozenset({"rate_limit_exceeded", "insufficient_quota", "tool_use_failed"})
"""Codes of refusals that say nothing of the model."""

_QUOTED: Final = re.compile(r"""(?<!\w)(?:'[^']*'|"[^"]*"|`[^`]*`)(?!\w)""")

_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_N: Final = r"(\d{1,15})"

_CONTEXT: Final = _any_of(
    # vLLM, OpenAI, DeepSeek, OpenRouter, SGLang, xAI
    rf"maximum (?:context|model|prompt) length (?:of |is )?\(?{_N}",
    # llama.cpp, ds4
    rf"(?:available|configured) context size (?:is )?\(?{_N}",
    # Together, SGLang
    rf"model's context length \(?{_N}",
    # LM Studio
    rf"context length (?:of|is) only {_N}",
    rf"n_keep: \d+ ?>= n_ctx: {_N}",
    # Mistral
    rf"too large for model with {_N} maximum context length",
    # Text Generation Inference
    rf"inputs`? tokens \+ `?max_new_tokens`? must be <= {_N}",
    rf"inputs`? must have less than {_N} tokens",
    # Anthropic
    rf"prompt is too long: \d+ tokens > {_N} maximum",
    # Gemini
    rf"maximum number of tokens allowed \(?{_N}",
    # OpenAI, Copilot, Poolside, Kimi, DashScope
    rf"input tokens exceed the configured limit of {_N} tokens",
    rf"prompt token count of \d+ exceeds the limit of {_N}",
    rf"maximum allowed (?:input )?length (?:of )?\(?{_N}",
    rf"exceeded model token limit: {_N}",
    rf"range of input length should be \[\d+, ?{_N}\]",
)

_SAID: Final[Mapping[Feature, re.Pattern[str]]] = {
    Feature.TOOLS: _any_of(
        r"auto\W{1,2}tool choice requires --enable-auto-tool-choice",  # vLLM
        r"\btools param requires --jinja flag",  # llama.cpp
    ),
    Feature.TOOL_CHOICE: _any_of(
        r"\btool_choice param requires --jinja flag",  # llama.cpp
        r"""\btool_choice must either be a named tool, "auto",? or "none\"""",  # vLLM before 0.8.3
        r"\btool_choice ?= ?\W?required\W? is not supported",
        r"\bdoes not support tool_choice ?= ?\W?required\b",
        r"(?<!mode) does not support this tool_choice",  # DeepSeek
        r"no endpoints found that support the provided 'tool_choice' value",  # OpenRouter
    ),
    Feature.JSON_SCHEMA: _any_of(
        r"(?:response_format|text\.format)' of type 'json_schema' is not supported with",  # OpenAI
        r"model does not support response format `?json_schema",  # Groq
        r"^this response_format type is unavailable",  # DeepSeek
        r"json mode is not enabled for models/",  # Gemini
    ),
    Feature.VISION: _any_of(
        r"is not a multi-?modal model",  # vLLM
        r"\bat most 0 image",  # vLLM
        r"image_url is only supported by certain models",  # OpenAI
        r"image input is not supported - hint",  # llama.cpp
        r"model is missing data required for image input",  # Ollama
        r"unknown variant `image_url`, expected `text`",  # DeepSeek
        r"content part type for text-only server: image_url",
        r"content\.type is invalid, allowed values: \['text'\]",
        r"only 'text' content type is supported",
    ),
}
"""Wordings of their own, searched as they are."""

_NOUNS: Final[Mapping[Feature, str]] = {
    Feature.TOOLS: r"tools|tool[ -](?:use|usage|calls?|calling)|function[ -](?:calls?|calling)",
    Feature.TOOL_CHOICE: r"tool[ _-]choice",
    Feature.JSON_SCHEMA: r"json[ _-]schemas?|structured[ _-]outputs?|response_format|text\.format",
    Feature.VISION: (
        r"images|image[ -]inputs?(?: modality)?|input_image|vision|multi-?modal inputs?"
    ),
    Feature.REASONING: r"reasoning(?:[ ._]?effort)?|thinking",
}

_SOMEWHERE: Final = r"(?:model|endpoint|server|provider|deployment|backend|engine|api)s?\b"

_END: Final = (
    r"(?=\s*(?:$|[.;!,(\])]|[-–] |yet\b|at this time\b)"
    rf"|\s+(?:with|by|for|in|on|at)\s+(?:\w+ ){{0,2}}{_SOMEWHERE}"
    # The name of a model: it has digits, a slash or a colon, and is no condition.
    r"|\s+(?:with|by|for|in|on)\s+(?=\S*[\d/:])[^\s=<>]+(?:\W*$|[.;!,] ))"
)
"""What may follow, so that nothing but the model is the condition."""

_NOT: Final = (
    r"(?:is|are) (?:(?:currently )?not (?:yet |currently )?(?:supported|available|enabled)"
    r"|unsupported|disabled)"
)
_START: Final = r"(?:^|[.:;!,] ?|\b(?:the|parameter|argument|field|use of) )"
_MODEL: Final = (
    # A name that is more than a word, or a word for what serves it and perhaps its name.
    rf"(?:(?:^|[.:;!] )(?=\S*[\d/:\"'_-])\S+|\b{_SOMEWHERE}(?: \S+)?)"
)


def _plain(noun: str) -> re.Pattern[str]:
    """The usual ways to say that ``noun`` is not there."""
    name = rf"[\['\"`]*(?<![\w.])(?:{noun})(?![\w\[]|\.\w)[\]'\"`]*"
    thing = r"(?: (?:params?|parameters?|arguments?|fields?|inputs?|feature))?"
    return re.compile(
        rf"{_START}{name}{thing} {_NOT}{_END}"
        rf"|{_MODEL} (?:does not|doesn't|do not|don't) support (?:the )?"
        rf"(?:parameters?:? |use of )?{name}{thing}{_END}"
        rf"|no endpoints found that support {name}{_END}"
        rf"|\bun(?:supported|recognized|known|expected) (?:request )?(?:parameter|argument|field)s?"
        rf"(?: supplied)?:? {name}(?! ?\W?(?:with|of|value|for)\b)"
        rf"|\b(?:parameter|argument) not supported on this model: {name}\s*$",
        re.IGNORECASE,
    )


_PLAIN: Final = {feature: _plain(noun) for feature, noun in _NOUNS.items()}

_DEPENDS: Final = re.compile(
    r"\b(?:stream(?:s|ing|ed)?|parallel|hosted|built-?in|custom|strict|batch(?:es|ing)?|together"
    r"|simultaneous(?:ly)?|combin\w+|conjunction|alongside|both|when|while|unless|moved|renamed"
    r"|did you mean|must be satisfied|base64|urls?|mode)\b|value:|per minute",
    re.IGNORECASE,
)
"""Not the model, but something about this request, or where it was sent."""

_PARAMS: Final[Mapping[Feature, re.Pattern[str]]] = {
    feature: re.compile(rf"(?:model|{fields})?")
    for feature, fields in {
        Feature.TOOLS: r"tools|functions|tool[ _]calling",
        Feature.TOOL_CHOICE: r"tool_choice",
        Feature.JSON_SCHEMA: r"(?:response_format|text\.format)(?:\.type)?|text",
        Feature.VISION: r"image|(?:messages|input)(?:[\[.].*)?",
        Feature.REASONING: r"reasoning|reasoning[._]effort|think",
    }.items()
}
"""The fields that may be named as being at fault."""


def lesson(code: str | None, param: str | None, message: str) -> Abilities | None:
    """What is learned from the code, the param and the message of a refusal with a status of 400.

    Its ``lacks`` has the one feature that the model does not have, or its ``context`` what the
    model has, in tokens. None: nothing is learned. Whoever learns makes sure that the request
    needed what was refused.
    """
    if code in _OF_THE_MOMENT:
        return None
    text = _QUOTED.sub(_without_clients_words, message[:_MAX_MESSAGE].strip())
    context = _context(text)
    if context is not None:
        return Abilities(context=context)
    lacking = _lacking(text)
    if lacking is None or not _PARAMS[lacking].fullmatch(param or ""):
        return None
    return Abilities(lacks=lacking)


def _without_clients_words(quoted: re.Match[str]) -> str:
    return "''" if quoted[0].count(" ") > 1 else quoted[0]


def _context(text: str) -> int | None:
    found = _CONTEXT.search(_THOUSANDS.sub("", text))
    if found is None:
        return None
    tokens = int(next(number for number in found.groups() if number is not None))
    return tokens if _LEAST_CONTEXT <= tokens <= _MOST_CONTEXT else None


def _lacking(text: str) -> Feature | None:
    """The one feature that the message says is missing."""
    said = [feature for feature, wording in _SAID.items() if wording.search(text)]
    if not said and not _DEPENDS.search(text):
        said = [feature for feature, wording in _PLAIN.items() if wording.search(text)]
    return said[0] if len(said) == 1 else None
