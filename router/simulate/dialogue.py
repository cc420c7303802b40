"""What a simulated model is asked, and what it decides to answer: plain values, no wire format.

Every dialect reads its request into a ``SimulatedRequest`` and renders the ``SimulatedAnswer`` that
comes back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

__all__ = [
    "Finish",
    "FunctionCall",
    "Message",
    "Options",
    "Role",
    "SimulatedAnswer",
    "SimulatedRequest",
    "TokenUsage",
    "Tool",
    "count_tokens",
    "input_tokens",
    "pieces",
]

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "length", "tool_calls"]

_PIECE: Final = re.compile(r"\s*\w{1,6}|\s*[^\w\s]|\s+")
_TOKENS_PER_MESSAGE: Final = 4
_TOKENS_PER_IMAGE: Final = 85


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function call; ``arguments`` is a JSON object as text, ``id`` is empty in a plan."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. ``call_id`` and ``name`` say which call and function a tool message answers."""

    role: Role
    text: str = ""
    images: int = 0
    files: int = 0
    calls: tuple[FunctionCall, ...] = ()
    call_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function on offer; ``parameters`` is its JSON Schema."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    """How the answer shall be.

    ``tool_choice`` is ``auto``, ``none`` or ``required``; ``forced`` names the one function that
    must be called. ``effort`` asks for reasoning (``low``, ``medium``, ``high``, …), ``max_tokens``
    bounds reasoning and answer together. ``schema`` asks for JSON of that shape, ``json_mode``
    for any JSON object. ``logprobs`` is how many alternatives to tell beside each piece of the
    text; None tells nothing of how sure the model was.
    """

    tool_choice: Literal["auto", "none", "required"] = "auto"
    forced: str | None = None
    parallel: bool = True
    effort: str | None = None
    max_tokens: int | None = None
    schema: Mapping[str, Any] | None = None
    json_mode: bool = False
    stop: tuple[str, ...] = ()
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """A request, whatever dialect it came in."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Token counts; ``output`` includes ``reasoning``."""

    input: int
    output: int
    reasoning: int

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class SimulatedAnswer:
    """The whole answer: reasoning, then text or calls. Empty text means that there is none."""

    reasoning: str
    text: str
    calls: tuple[FunctionCall, ...]
    finish: Finish
    usage: TokenUsage


def pieces(text: str) -> list[str]:
    """Cut a text into what a model would emit at a time; joined they are the text again."""
    return _PIECE.findall(text)


def count_tokens(text: str) -> int:
    """The length of a text in tokens; here a token is one of its ``pieces``."""
    return len(pieces(text))


def input_tokens(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
    """What a request costs: its texts, images and calls, a little per message, the tools."""
    total = 0
    for message in messages:
        total += _TOKENS_PER_MESSAGE + count_tokens(message.text)
        total += _TOKENS_PER_IMAGE * message.images
        for call in message.calls:
            total += count_tokens(call.name) + count_tokens(call.arguments)
    for tool in tools:
        schema = orjson.dumps(dict(tool.parameters)).decode()
        total += count_tokens(tool.name) + count_tokens(tool.description) + count_tokens(schema)
    return total
