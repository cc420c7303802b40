"""Which of the offered functions a simulated model calls, and with what arguments."""

from __future__ import annotations

import math
import re
from typing import Final

import orjson

from router.simulate.dialogue import FunctionCall, Message, SimulatedRequest, Tool
from router.simulate.sample import Hints, sample

__all__ = ["choose_calls", "hints_of", "results_since_question"]

_MAX_CALLS: Final = 8
_WORD: Final = re.compile(r"[a-z0-9]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_COMMON_WORDS: Final = (
    "a add all at by call check compute create current delete do execute fetch find for from "
    "function get in info is list look lookup make my new of on query read run search set show "
    "the to tool up update use user with write"
)
_VERBS: Final = frozenset(_COMMON_WORDS.split())
_NAMES: Final = r"[A-Z][\w'’-]*(?:[ ][A-Z][\w'’-]*)*"
_SUBJECTS: Final = re.compile(
    rf"\b(?:in|at|for|near|to|from|of|about)\s+({_NAMES}(?:(?:,\s*(?:and\s+)?|\s+and\s+){_NAMES})*)"
)
_BETWEEN: Final = re.compile(r",\s*(?:and\s+)?|\s+and\s+")
_NUMBER: Final = re.compile(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?(?!\w)")


def choose_calls(question: SimulatedRequest, text: str) -> tuple[FunctionCall, ...]:
    """The calls to make for ``text``, the latest question; none where text is the answer.

    A forced function is always called. Left to itself, the model calls what the question names
    (``get_weather``, "the weather in Paris"), and not again once it has the result. A question
    about several names ("Paris and Rome") becomes a call for each.
    Raises SchemaError where a function's parameters have no instance.
    """
    tools = _called_for(question, text)
    subjects = _subjects(text) or [""]
    calls = [_call(tool, text, subject) for tool in tools for subject in subjects]
    # A function without parameters, or without a text among them, says the same thing twice.
    different = list(dict.fromkeys(calls))
    return tuple(different[: _MAX_CALLS if question.options.parallel else 1])


def results_since_question(messages: tuple[Message, ...]) -> list[Message]:
    """The tool results that arrived after the latest user message."""
    results: list[Message] = []
    for message in messages:
        if message.role == "tool":
            results.append(message)
        elif message.role == "user":
            results.clear()
    return results


def hints_of(text: str, subject: str | None = None) -> Hints:
    """What a text offers for filling in a schema."""
    numbers = [float(number) for number in _NUMBER.findall(text)]
    if subject is None:
        subject = next(iter(_subjects(text)), "")
    return Hints(text, subject, tuple(number for number in numbers if math.isfinite(number)))


def _called_for(question: SimulatedRequest, text: str) -> list[Tool]:
    options = question.options
    if options.forced is not None:
        return [tool for tool in question.tools if tool.name == options.forced]
    if options.tool_choice == "none":
        return []
    if options.tool_choice == "auto" and results_since_question(question.messages):
        return []
    words = _words(text)
    matching = [tool for tool in question.tools if _matches(tool, text, words)]
    if options.tool_choice == "required":
        return matching or list(question.tools[:1])
    return matching


def _matches(tool: Tool, text: str, words: frozenset[str]) -> bool:
    if tool.name.lower() in text.lower():
        return True
    telling = _words(_CAMEL.sub(" ", tool.name)) - _VERBS
    return bool(telling & words)


def _words(text: str) -> frozenset[str]:
    """The words of a text without case and plural s."""
    return frozenset(
        word[:-1] if len(word) > 3 and word.endswith("s") else word
        for word in _WORD.findall(text.lower())
    )


def _subjects(text: str) -> list[str]:
    """The proper names that the question is about."""
    found = [name for names in _SUBJECTS.findall(text) for name in _BETWEEN.split(names)]
    return list(dict.fromkeys(found))[:_MAX_CALLS]


def _call(tool: Tool, text: str, subject: str) -> FunctionCall:
    schema = {"type": "object", **tool.parameters}
    arguments = sample(schema, hints_of(text, subject))
    return FunctionCall(tool.name, orjson.dumps(arguments).decode())
