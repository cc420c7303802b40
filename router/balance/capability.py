"""What a request needs of a model, what a model can do, and what to say when the two never meet.

What a request needs is read from its body, in the form of a Responses request, and nothing is taken
for granted about its shape. How long it is, is for the caller to estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntFlag, auto
from typing import Any, Final, NamedTuple

from router.settings.model_names import fits
from router.settings.schema import CapabilitySettings

__all__ = [
    "ALL_FEATURES",
    "NO_FEATURES",
    "Abilities",
    "Feature",
    "Unmet",
    "configured",
    "length_param",
    "missing_features",
    "needs",
    "openai_tools",
    "reads_files",
    "stream_usage",
    "too_long",
]

_SHOWN: Final = 200
"""Characters of a client's value that a message repeats."""

_CALLED: Final = ("function", "custom", "namespace", "tool_search")
"""Types of tools that are functions to a model, or bring some."""

_BRING_TOOLS: Final = ("additional_tools", "tool_search_output")
_IMAGES: Final = ("input_image", "computer_screenshot")


class Feature(IntFlag):
    """What some models can do and others cannot; the names are those of the configuration."""

    TOOLS = auto()
    TOOL_CHOICE = auto()
    JSON_SCHEMA = auto()
    VISION = auto()
    REASONING = auto()


NO_FEATURES: Final = Feature(0)
ALL_FEATURES: Final = ~NO_FEATURES


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a model can do at an endpoint: everything, but for what it ``lacks``.

    ``context`` is in tokens, input and output; None: not known. ``has`` is what the configuration
    says is there.
    """

    lacks: Feature = NO_FEATURES
    context: int | None = None
    has: Feature = NO_FEATURES

    def after(self, inferred: Abilities) -> Abilities:
        """The same with what a refusal has taught; what is configured to be there stays."""
        contexts = [one.context for one in (self, inferred) if one.context is not None]
        lacks = self.lacks | (inferred.lacks & ~self.has)
        return Abilities(lacks, min(contexts, default=None), self.has)


class Unmet(NamedTuple):
    """Why nobody can serve a request: for the client, with the field of Responses at fault."""

    message: str
    param: str


def configured(capabilities: Mapping[str, CapabilitySettings], model: str) -> Abilities:
    """What the configuration says of the endpoint's own name for a model, by pattern.

    Later entries win, field by field. Ollama's ``:latest`` may be left out on either side.
    """
    lacks = has = NO_FEATURES
    for feature in Feature:
        able = _stated(capabilities, model, str(feature.name).lower())
        if able is False:
            lacks |= feature
        elif able:
            has |= feature
    return Abilities(lacks, _stated(capabilities, model, "context_length"), has)


def stream_usage(capabilities: Mapping[str, CapabilitySettings], model: str) -> bool | None:
    """Whether streams are configured to have token counts; None where nothing is said of it."""
    said: bool | None = _stated(capabilities, model, "stream_usage") if capabilities else None
    return said


def openai_tools(capabilities: Mapping[str, CapabilitySettings], model: str) -> bool | None:
    """Whether OpenAI's kinds of tools are configured to be known; None where nothing is said."""
    said: bool | None = _stated(capabilities, model, "openai_tools") if capabilities else None
    return said


def reads_files(capabilities: Mapping[str, CapabilitySettings], model: str) -> bool | None:
    """Whether files are configured to be read; None where nothing is said of it."""
    said: bool | None = _stated(capabilities, model, "files") if capabilities else None
    return said


def needs(body: Mapping[str, Any], of: Feature) -> Feature:
    """Which of the features ``of`` this request needs.

    Only those are looked for: images may be anywhere in a long history. Tools that run on the
    server need none. An effort of ``none`` asks for no reasoning, any other does.
    """
    wanted, found = int(of), 0  # a flag is many times slower than its number
    for feature, asks in _ASKS:
        if wanted & feature and asks(body):
            found |= feature
    return Feature(found)


def missing_features(model: str, needed: Feature, lacks: Iterable[int]) -> Unmet:
    """What to say where each endpoint of a model lacks some of what is ``needed``.

    ``lacks`` has one entry for each endpoint, of which there is at least one.
    """
    nowhere, somewhere = needed, NO_FEATURES
    for lack in lacks:
        nowhere &= lack
        somewhere |= needed & lack
    if nowhere:
        what = _listed([_NAMES[feature] for feature in nowhere])
    else:
        what = _listed([_NAMES[feature] for feature in somewhere]) + " at once"
    message = f"No endpoint that serves '{model[:_SHOWN]}' supports {what}."
    return Unmet(message, _PARAMS[next(iter(nowhere or somewhere))])


def too_long(body: Mapping[str, Any], model: str, tokens: int, context: int) -> Unmet:
    """What to say where a request of about ``tokens`` fits into nobody's context."""
    message = (
        f"The request has about {tokens} tokens; the largest context for '{model[:_SHOWN]}' is "
        f"{context}."
    )
    return Unmet(message, length_param(body))


def length_param(body: Mapping[str, Any]) -> str:
    """The field to name where a request is too long."""
    return "prompt" if isinstance(body.get("prompt"), str | list) else "input"


def _stated(capabilities: Mapping[str, CapabilitySettings], model: str, field: str) -> Any:
    """The last that is said of a field."""
    said = None
    for pattern, entry in capabilities.items():
        value = getattr(entry, field)
        if value is not None and fits(model, pattern):
            said = value
    return said


def _listed(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _offers_tools(body: Mapping[str, Any]) -> bool:
    if any(tool.get("type") in _CALLED for tool in _dicts(body.get("tools"))):
        return True
    return any(
        tool.get("type") in _CALLED
        for item in _dicts(body.get("input"))
        if item.get("type") in _BRING_TOOLS
        for tool in _dicts(item.get("tools"))
    )


def _forces_a_call(body: Mapping[str, Any]) -> bool:
    if not _offers_tools(body):
        return False
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return choice == "required"
    kind = choice.get("type")
    return choice.get("mode") == "required" if kind == "allowed_tools" else kind in _CALLED


def _has_a_schema(body: Mapping[str, Any]) -> bool:
    text = body.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    return isinstance(form, dict) and form.get("type") == "json_schema"


def _shows_images(body: Mapping[str, Any]) -> bool:
    return any(part.get("type") in _IMAGES for part in _parts(body))


def _asks_to_reason(body: Mapping[str, Any]) -> bool:
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    return (effort or "none") != "none"


def _parts(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of every message, and of every tool's output."""
    for field in ("input", "instructions"):
        for item in _dicts(body.get(field)):
            yield from _dicts(item.get("content"))
            output = item.get("output")
            yield from _dicts([output] if isinstance(output, dict) else output)


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, dict))


_ASKS: Final[tuple[tuple[int, Callable[[Mapping[str, Any]], bool]], ...]] = (
    (int(Feature.TOOLS), _offers_tools),
    (int(Feature.TOOL_CHOICE), _forces_a_call),
    (int(Feature.JSON_SCHEMA), _has_a_schema),
    (int(Feature.VISION), _shows_images),
    (int(Feature.REASONING), _asks_to_reason),
)

_NAMES: Final[Mapping[Feature, str]] = {
    Feature.TOOLS: "function tools",
    Feature.TOOL_CHOICE: "a forced tool choice",
    Feature.JSON_SCHEMA: "a JSON schema for the answer",
    Feature.VISION: "images in the input (vision)",
    Feature.REASONING: "a reasoning effort",
}

_PARAMS: Final[Mapping[Feature, str]] = {
    Feature.TOOLS: "tools",
    Feature.TOOL_CHOICE: "tool_choice",
    Feature.JSON_SCHEMA: "text.format",
    Feature.VISION: "input",
    Feature.REASONING: "reasoning",
}
"""The field at fault."""
