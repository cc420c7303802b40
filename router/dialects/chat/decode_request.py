"""A request of Chat Completions as one of the Responses API.

What Responses have no field for stays in the body under its own name: an endpoint's translation
takes what it can carry (Ollama has ``stop`` and ``seed``) and names the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.chat.decode_messages import to_items
from router.dialects.chat.schema import check_fields
from router.dialects.dropped import is_default
from router.dialects.responses.fields import IN_CHAT, RESPONSES_FIELDS
from router.errors import InvalidRequest

__all__ = ["DecodedChatRequest", "decode_chat_request"]

_READ: Final = frozenset(
    {
        "function_call",
        "functions",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "reasoning_effort",
        "response_format",
        "stream",
        "stream_options",
        "tool_choice",
        "tools",
        "verbosity",
    }
)
"""Fields of a chat that become others, or none."""

_LOGPROBS: Final = "message.output_text.logprobs"
_AUDIO: Final = "audio"

_ITEM: Final = re.compile(r"(input|instructions)\[(\d+)\](.*)")
_TOOL: Final = re.compile(r"(tools\[\d+\])\.(name|description|parameters|strict)\b(.*)")
_PARTS: Final = (
    (re.compile(r"\.output\b"), ".content"),
    (re.compile(r"(\])\.image_url$"), r"\1.image_url.url"),
    (re.compile(r"(\])\.(file_data|file_id|filename)$"), r"\1.file.\2"),
)
_NAMES: Final[Mapping[str, str]] = {
    "input": "messages",
    "instructions": "messages",
    "include": "logprobs",
    "reasoning": "reasoning_effort",
    "reasoning.effort": "reasoning_effort",
    "text.verbosity": "verbosity",
    "tool_choice.name": "tool_choice.function.name",
}


@dataclass(frozen=True, slots=True)
class DecodedChatRequest:
    """A translated request. ``body`` is a validated Responses request, ``dropped`` what it lacks.

    ``places`` is where in the chat each item of its input stood; ``limit`` the name that the chat
    has for the limit of the answer.
    """

    body: dict[str, Any]
    dropped: tuple[str, ...]
    places: Sequence[str]
    limit: str

    def named(self, field: str) -> str:
        """What the chat calls a field of the Responses request: ``messages[2].content``."""
        if (item := _ITEM.fullmatch(field)) is not None:
            index, rest = int(item[2]), item[3]
            if index >= len(self.places):
                return "messages"
            for wording, words in _PARTS:
                rest = wording.sub(words, rest)
            return self.places[index] + rest
        if (tool := _TOOL.fullmatch(field)) is not None:
            return f"{tool[1]}.function.{tool[2]}{tool[3]}"
        if field == "max_output_tokens":
            return self.limit
        if field.startswith("text.format"):
            return "response_format" + field.removeprefix("text.format")
        return _NAMES.get(field, field)


def decode_chat_request(
    chat: Mapping[str, Any], *, model: str, reasoning: bool
) -> DecodedChatRequest:
    """Translate a Chat Completions request, which stays as it is.

    ``model`` is the client's name for the model. ``reasoning`` keeps that of earlier turns, where
    a client sends it back. Raises InvalidRequest for what is wrong with it, and for what no answer
    could make up for: functions in their old form, audio.
    """
    check_fields(chat)
    _refuse(chat)
    items, places, dropped = to_items(chat["messages"], reasoning=reasoning)
    body: dict[str, Any] = {"model": model, "input": items}
    if chat.get("store"):
        dropped.append("store")  # a chat completion is kept by nobody here
    for name, value in chat.items():
        if value is None or name in _READ or name == "model":
            continue
        if name in RESPONSES_FIELDS and name not in IN_CHAT:
            if name != "store":
                dropped.append(name)
        else:
            body[name] = value
    limit = "max_tokens" if chat.get("max_completion_tokens") is None else "max_completion_tokens"
    if chat.get(limit) is not None:
        body["max_output_tokens"] = chat[limit]
    if chat.get("tools"):
        body["tools"] = list(map(_tool, chat["tools"]))
    if chat.get("tool_choice") is not None:
        body["tool_choice"] = _choice(chat["tool_choice"])
    if text := _text(chat):
        body["text"] = text
    if chat.get("reasoning_effort") is not None:
        body["reasoning"] = {"effort": chat["reasoning_effort"]}
    if chat.get("logprobs"):
        body["include"] = [_LOGPROBS]
    else:
        body.pop("top_logprobs", None)
    return DecodedChatRequest(body, tuple(dropped), places, limit)


def _refuse(chat: Mapping[str, Any]) -> None:
    for name in ("functions", "function_call"):
        if not is_default(name, chat.get(name)):
            raise InvalidRequest(
                f"Unsupported parameter: '{name}' is the old form of 'tools' and 'tool_choice', "
                "and this model's endpoint knows only the new one.",
                code="unsupported_parameter",
                param=name,
            )
    if _AUDIO in (chat.get("modalities") or ()) or chat.get(_AUDIO) is not None:
        name = "modalities" if chat.get(_AUDIO) is None else _AUDIO
        raise InvalidRequest(
            f"Unsupported parameter: '{name}' asks for audio, and this model's endpoint answers "
            "with text only.",
            code="unsupported_parameter",
            param=name,
        )


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    kind = tool["type"]
    given = {name: value for name, value in tool[kind].items() if value is not None}
    if kind == "function":
        # What a chat leaves out is false, what a Responses request leaves out is true.
        return {"type": kind, "strict": False, "parameters": None, **given}
    form = given.get("format")
    if form is not None and form["type"] == "grammar":
        given["format"] = {"type": "grammar", **form["grammar"]}
    return {"type": kind, **given}


def _choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return choice
    kind = choice["type"]
    if kind == "allowed_tools":
        allowed = choice[kind]
        tools = [_named(tool) for tool in allowed["tools"]]
        return {"type": kind, "mode": allowed["mode"], "tools": tools}
    return _named(choice)


def _named(tool: Mapping[str, Any]) -> dict[str, Any]:
    kind = tool["type"]
    return {"type": kind, "name": tool[kind]["name"]}


def _text(chat: Mapping[str, Any]) -> dict[str, Any]:
    text: dict[str, Any] = {}
    form = chat.get("response_format")
    if form is not None:
        text["format"] = _format(form)
    if chat.get("verbosity") is not None:
        text["verbosity"] = chat["verbosity"]
    return text


def _format(form: Mapping[str, Any]) -> dict[str, Any]:
    kind = form["type"]
    if kind != "json_schema":
        return {"type": kind}
    given = {name: value for name, value in form[kind].items() if value is not None}
    return {"type": kind, "schema": {"type": "object"}, "strict": False, **given}
