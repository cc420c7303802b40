"""A request of Chat Completions as one of the Responses API.

Decoding refuses nothing: what a Responses request has no words for is kept beside it, so that
different chats stay different. Whether all of a chat can be carried is checked where an endpoint
is to get the translation (``check_translatable``). Fields that are of no API stay in the body under
their own names: an endpoint's translation takes what it can carry (Ollama has ``stop`` and
``seed``) and names the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cache.canonical import named_only
from router.dialects.chat.check_messages import check_messages
from router.dialects.chat.decode_messages import MessageDecoder, Place
from router.dialects.chat.schema import check_fields
from router.dialects.dropped import is_default
from router.dialects.history import match
from router.dialects.responses.fields import IN_CHAT, RESPONSES_FIELDS
from router.errors import InvalidRequest

__all__ = ["DecodedChat", "check_translatable", "decode_chat"]

Fields = dict[str, Any]

_READ: Final = frozenset(
    {
        "function_call",
        "functions",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "reasoning_effort",
        "response_format",
        "store",
        "stream",
        "stream_options",
        "tool_choice",
        "tools",
        "verbosity",
    }
)
"""Fields of a chat that become others, or none."""

_STREAMING: Final = frozenset({"stream", "stream_options"})
_LOGPROBS: Final = "message.output_text.logprobs"
_AUDIO: Final = "audio"
_LEGACY: Final = ("functions", "function_call")
_CALLABLE: Final = ("function", "custom")
_FUNCTION: Final = ("name", "description", "parameters", "strict")
_CUSTOM: Final = ("name", "description", "format")
_SCHEMA: Final = ("name", "description", "schema", "strict")

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
class DecodedChat:
    """A decoded request.

    ``chat`` is what it was made of. ``body`` is the Responses request: a valid one where the chat
    is translatable. ``kept`` is what the body does not say of the chat, by its path: two chats are
    alike only where both are. ``dropped`` are the paths that a translation names as left out,
    ``places`` is where each item of the input stood, ``limit`` the name that the chat has for the
    limit of the answer.
    """

    chat: Mapping[str, Any]
    body: Fields
    kept: Fields
    dropped: tuple[str, ...]
    places: Sequence[Place]
    limit: str

    def is_of(self, chat: Mapping[str, Any]) -> bool:
        """Whether this is what ``chat`` is decoded to: how it is streamed is no part of it."""
        ours = self.chat
        return chat is ours or all(
            chat.get(name) is ours.get(name) for name in {*chat, *ours} - _STREAMING
        )

    def named(self, field: str) -> str:
        """What the chat calls a field of the Responses request: ``messages[2].content``."""
        if (item := _ITEM.fullmatch(field)) is not None:
            index, rest = int(item[2]), item[3]
            if index >= len(self.places):
                return "messages"
            for wording, words in _PARTS:
                rest = wording.sub(words, rest)
            return _path(self.places[index]) + rest
        if (tool := _TOOL.fullmatch(field)) is not None:
            return f"{tool[1]}.function.{tool[2]}{tool[3]}"
        if field == "max_output_tokens":
            return self.limit
        if field.startswith("text.format"):
            return "response_format" + field.removeprefix("text.format")
        return _NAMES.get(field, field)

    def calls(self) -> dict[int, int]:
        """By the place of each message with a call's output, that of the message with the call."""
        messages = [place if isinstance(place, int) else place[0] for place in self.places]
        matched = match(self.body["input"]).calls
        return {messages[output]: messages[call] for output, call in matched.items()}

    def without_reasoning(self) -> DecodedChat:
        """The same without the reasoning of earlier turns."""
        items = self.body["input"]
        left = [n for n, item in enumerate(items) if item["type"] != "reasoning"]
        if len(left) == len(items):
            return self
        body = {**self.body, "input": [items[n] for n in left]}
        return replace(self, body=body, places=[self.places[n] for n in left])


def check_translatable(chat: Mapping[str, Any]) -> None:
    """Check a chat that is to be translated; raises InvalidRequest for what is wrong with it, and
    for what no answer could make up for: functions in their old form, audio.
    """
    check_fields(chat)
    for name in _LEGACY:
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
    check_messages(chat["messages"])


def decode_chat(chat: Mapping[str, Any]) -> DecodedChat:
    """Translate a Chat Completions request, of which as much has been checked as ``check_chat``
    does; it stays as it is.
    """
    messages = MessageDecoder()
    messages.decode(chat["messages"])
    body: Fields = {"model": chat["model"], "input": messages.items}
    kept, dropped = messages.kept, messages.dropped
    if chat.get("store"):
        dropped.append("store")  # a chat completion is kept by nobody here
    for name, value in chat.items():
        if value is None or name in _READ or (name == "n" and _is(value, 1)):
            continue
        if name in RESPONSES_FIELDS and name not in IN_CHAT:
            kept[name] = value
            dropped.append(name)
        else:
            body[name] = value
    get = chat.get
    completion, limit = get("max_completion_tokens"), "max_completion_tokens"
    if completion is None:
        limit = "max_tokens"
    elif get("max_tokens") is not None:
        kept["max_tokens"] = get("max_tokens")
    if get(limit) is not None:
        body["max_output_tokens"] = get(limit)
    _decode_tools(chat, body, kept)
    if (choice := get("tool_choice")) is not None:
        body["tool_choice"] = _whole("tool_choice", choice, _choice(choice), kept)
    if (form := get("response_format")) is not None:
        body["text"] = {"format": _whole("response_format", form, _format(form), kept)}
    if (verbosity := get("verbosity")) is not None:
        body["text"] = {**body.get("text", {}), "verbosity": verbosity}
    if (effort := get("reasoning_effort")) is not None:
        body["reasoning"] = {"effort": effort}
    _decode_logprobs(get("logprobs"), body, kept)
    return DecodedChat(chat, body, kept, tuple(dropped), messages.places, limit)


def _path(place: Place) -> str:
    if isinstance(place, int):
        return f"messages[{place}]"
    message, call = place
    return f"messages[{message}].tool_calls[{call}]"


def _is(value: Any, number: int) -> bool:
    return type(value) in (int, float) and bool(value == number)


def _whole(path: str, given: Any, decoded: tuple[Any, bool], kept: Fields) -> Any:
    """What is decoded of a value, which is kept as well where that is not all of it."""
    made, is_all = decoded
    if not is_all:
        kept[path] = given
    return made


def _decode_logprobs(wanted: Any, body: Fields, kept: Fields) -> None:
    if wanted:
        body["include"] = [_LOGPROBS]
    if wanted is not None and type(wanted) is not bool:
        kept["logprobs"] = wanted
    # Without logprobs it asks for nothing, or for a mistake.
    if not wanted and not _is(top := body.pop("top_logprobs", 0), 0):
        kept["top_logprobs"] = top


def _decode_tools(chat: Mapping[str, Any], body: Fields, kept: Fields) -> None:
    """The tools, functions in their old form among them."""
    tools, functions = chat.get("tools"), chat.get("functions")
    made: list[Any] = []
    if type(tools) is list:
        for index, tool in enumerate(tools):
            made.append(_whole(f"tools[{index}]", tool, _tool(tool), kept))
    elif tools is not None:
        kept["tools"] = tools
    if functions is not None:
        kept["functions"] = functions
        listed = functions if type(functions) is list else ()
        made += [{**one, "type": "function"} for one in listed if type(one) is dict]
    if (call := chat.get("function_call")) is not None:
        kept["function_call"] = call
        if made and call not in ("auto", "none"):
            body["tool_choice"] = {"type": "function", **call} if type(call) is dict else call
    if made:
        body["tools"] = made


def _tool(tool: Any) -> tuple[Any, bool]:
    """A tool, and whether that is all of it; as it came where it is of no kind known here."""
    kind = _kind(tool, _CALLABLE)
    given = tool[kind] if kind else None
    if type(given) is not dict:
        return tool, False
    said = _there(given)
    if kind == "function":
        is_all = named_only(given, *_FUNCTION) and type(said.get("strict", False)) is bool
        # What a chat leaves out is false, what a Responses request leaves out is true.
        made = {"type": kind, "strict": False, "parameters": None, **said}
    else:
        is_all, form = named_only(given, *_CUSTOM), said.get("format")
        made = {"type": kind, **said}
        grammar = form["grammar"] if form and _kind(form, ("grammar",)) else None
        if type(grammar) is dict:
            made["format"] = {"type": "grammar", **_there(grammar)}
            is_all = is_all and named_only(form, "type", "grammar")
            is_all = is_all and named_only(grammar, "syntax", "definition")
        elif form is not None and form != {"type": "text"}:
            is_all = False
    return {**made, "type": kind}, is_all and named_only(tool, "type", kind)


def _choice(choice: Any) -> tuple[Any, bool]:
    if type(choice) is str:
        return choice, True
    kind = _kind(choice, ("allowed_tools",))
    allowed = choice[kind] if kind else None
    if type(allowed) is not dict:
        return _named(choice)
    tools = allowed.get("tools")
    named = [_named(tool) for tool in tools] if type(tools) is list else [(tools, False)]
    made = {"type": kind, "mode": allowed.get("mode"), "tools": [tool for tool, _ in named]}
    is_all = all(is_all for _, is_all in named)
    return made, is_all and named_only(choice, "type", kind) and named_only(
        allowed, "mode", "tools"
    )


def _named(tool: Any) -> tuple[Any, bool]:
    kind = _kind(tool, _CALLABLE)
    given = tool[kind] if kind else None
    if type(given) is not dict or type(given.get("name")) is not str:
        return tool, False
    is_all = named_only(tool, "type", kind) and named_only(given, "name")
    return {"type": kind, "name": given["name"]}, is_all


def _format(form: Any) -> tuple[Any, bool]:
    kind = _kind(form, ("json_schema",))
    given = form[kind] if kind else None
    if type(given) is dict:
        said = _there(given)
        is_all = named_only(given, *_SCHEMA) and type(said.get("strict", False)) is bool
        made = {"type": kind, "schema": {"type": "object"}, "strict": False, **said}
        return {**made, "type": kind}, is_all and "schema" in said and named_only(
            form, "type", kind
        )
    if type(form) is dict and form.get("type") in ("text", "json_object"):
        return {"type": form["type"]}, named_only(form, "type")
    return form, False


def _there(given: Fields) -> Fields:
    return {name: value for name, value in given.items() if value is not None}


def _kind(given: Any, known: tuple[str, ...]) -> str:
    """Which of the ``known`` types an object is of, and has the member that belongs to it; empty
    for any other value.
    """
    kind = given.get("type") if type(given) is dict else None
    return kind if kind in known and kind in given else ""
