"""What an endpoint's refusal teaches about its model: a feature that it lacks, or its context.

A wrong inference takes an endpoint away from a model's requests, so only what says in so many words
that the model (not this value, this schema, or this combination) is at fault teaches anything.
Endpoints repeat what clients sent: quoted texts of more than two words are not listened to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from router.balance.capability import Abilities, Feature
from router.balance.overflow import stated_context, without_quotations

__all__ = ["inferred_abilities"]

_OF_THE_MOMENT: Final = frozenset({"rate_limit_exceeded", "insufficient_quota", "tool_use_failed"})
"""Codes of refusals that say nothing of the model."""


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


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


def inferred_abilities(code: str | None, param: str | None, message: str) -> Abilities | None:
    """What is learned from the code, the param and the message of a refusal with a status of 400.

    Its ``lacks`` has the one feature that the model does not have, or its ``context`` what the
    model has, in tokens. None: nothing is learned. Whoever learns makes sure that the request
    needed what was refused.
    """
    if code in _OF_THE_MOMENT:
        return None
    text = without_quotations(message)
    context = stated_context(text)
    if context is not None:
        return Abilities(context=context)
    lacking = _unsupported(text)
    if lacking is None or not _PARAMS[lacking].fullmatch(param or ""):
        return None
    return Abilities(lacks=lacking)


def _unsupported(text: str) -> Feature | None:
    """The one feature that the message says is missing."""
    said = [feature for feature, wording in _SAID.items() if wording.search(text)]
    if not said and not _DEPENDS.search(text):
        said = [feature for feature, wording in _PLAIN.items() if wording.search(text)]
    return said[0] if len(said) == 1 else None
