"""A response as messages: what a request with ``enable_response_messages`` is told beside items.

The form is vLLM's, of its models' Harmony format (``openai_harmony.Message``), whatever model
answers::

    {"author": {"role", "name"}, "role", "name",    role: system, developer, user, assistant, tool
     "channel",                                     analysis, commentary, final or None
     "recipient",                                   of a call: functions.NAME, LABEL.NAME, python …
     "content": [{"type": "text", "text"}],
     "content_type",                                "json" for arguments
     "call_id"}                                     of a call of a function, and of its output

Role and name are there twice: ``openai_harmony`` reads and writes them on top, vLLM's responses
have them in ``author``. Parts that are no text stand as they came; items that say nothing to a
model (lists of tools, encrypted reasoning, what is not known here) are no messages.
``message_history`` is the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from router.dialects.chat.messages import reasoning_text
from router.dialects.hosted_items import call_and_output, denial
from router.dialects.responses.input_items import TEXT_PARTS, item_type
from router.dialects.responses.namespaces import flatten

__all__ = [
    "BROWSER",
    "DEVELOPER",
    "FUNCTIONS",
    "INPUT_MESSAGES",
    "OUTPUT_MESSAGES",
    "PYTHON",
    "PYTHON_LABEL",
    "input_messages",
    "output_messages",
]

Item = dict[str, Any]
Message = dict[str, Any]

INPUT_MESSAGES: Final = "input_messages"
OUTPUT_MESSAGES: Final = "output_messages"

FUNCTIONS: Final = "functions."
"""What the names of the client's own tools begin with."""

PYTHON: Final = "python"
PYTHON_LABEL: Final = "code_interpreter"
"""Models of the Harmony format know a code interpreter as ``python``, and so does vLLM: an MCP
server with this label is called by that name."""

BROWSER: Final = "browser."
"""What their names for web search begin with."""

FILE_SEARCH: Final = "file_search"
DEVELOPER: Final = "developer_content"
"""The type of the part that says which functions there are."""

_BROWSES: Final = {"open_page": "open", "find": "find", "find_in_page": "find"}
"""The rest of those names, by the type of a ``web_search_call``'s action."""

_CALLABLE: Final = frozenset({"function", "custom"})
_JSON: Final = "json"


def input_messages(body: Mapping[str, Any]) -> list[Message]:
    """What the model is given by this request, its history included.

    The first is the system message: the instructions, and the system messages that the input
    begins with; it is empty where there are none. The client's functions are a developer message,
    in the form of Harmony. ``body`` is a valid create request.
    """
    instructions = body.get("instructions") or []
    items = _items(body.get("input") or [])
    system: list[str] = []
    if isinstance(instructions, str):
        system.append(instructions)
    else:
        items = [*instructions, *items]
    begun = 0
    while begun < len(items) and _is_system(items[begun]):
        system += [part["text"] for part in _parts(items[begun]["content"]) if "text" in part]
        begun += 1
    told = _message("system", _text("\n\n".join(filter(None, system))))
    tools = _offered(body.get("tools") or ())
    return [told, *tools, *_Writer().messages(items[begun:])]


def output_messages(output: Sequence[Any]) -> list[Message]:
    """What the model said, and what came of the tools that were run for it."""
    return _Writer().messages(item for item in output if isinstance(item, dict))


class _Writer:
    """Makes messages of items. The names of calls are kept for what answers them, by id."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def messages(self, items: Iterable[Item]) -> list[Message]:
        made: list[Message] = []
        for item in items:
            kind = item_type(item)
            make = _MAKE.get(kind) if isinstance(kind, str) else None
            if make is not None:
                made += make(self, item)
        return made

    def said(self, item: Item) -> list[Message]:
        role, content = _string(item.get("role")), _parts(item.get("content"))
        if role != "assistant":
            return [_message(role, content)] if role else []
        channel = "commentary" if item.get("phase") == "commentary" else "final"
        return [_message(role, content, channel=channel)]

    def reasoned(self, item: Item) -> list[Message]:
        text = reasoning_text(item)
        return [_message("assistant", _text(text), channel="analysis")] if text else []

    def called(self, item: Item) -> list[Message]:
        custom = item["type"] == "custom_tool_call"
        content = _string(item.get("input" if custom else "arguments"))
        call_id = _string(item.get("call_id"))
        namespace = _string(item.get("namespace"))
        name = _string(item.get("name"))
        name = self._names[call_id] = f"{FUNCTIONS}{namespace and f'{namespace}__'}{name}"
        return [{**_call(name, content, None if custom else _JSON), "call_id": call_id}]

    def returned(self, item: Item) -> list[Message]:
        call_id = _string(item.get("call_id"))
        made = _output(self._names.get(call_id), _parts(item.get("output")))
        return [{**made, "call_id": call_id}]

    def ran(self, item: Item) -> list[Message]:
        arguments, output = call_and_output(item)
        name = _hosted_name(item)
        told = _output(name, _text(output))
        if _string(item.get("approval_request_id")) in self._names:
            return [told]  # the call was shown where it was asked for
        return [_call(name, arguments), told]

    def asks_approval(self, item: Item) -> list[Message]:
        name = self._names[_string(item.get("id"))] = _hosted_name(item)
        return [_call(name, _string(item.get("arguments")))]

    def answers_approval(self, item: Item) -> list[Message]:
        told = denial(item)
        name = self._names.get(_string(item.get("approval_request_id")))
        return [] if told is None or name is None else [_output(name, _text(told))]

    def searched(self, item: Item) -> list[Message]:
        arguments, output = call_and_output(item)
        action = item.get("action")
        kind = _string(action.get("type")) if isinstance(action, dict) else ""
        name = f"{BROWSER}{_BROWSES.get(kind, 'search')}"
        return [_call(name, arguments), _output(name, _text(output))]

    def computed(self, item: Item) -> list[Message]:
        called = _call(PYTHON, _string(item.get("code")), None)
        outputs = item.get("outputs")
        if not isinstance(outputs, list):
            return [called]  # they are told only where ``include`` asks for them
        logs = [_string(output.get("logs")) for output in _dicts(outputs)]
        return [called, _output(PYTHON, _text("\n".join(filter(None, logs))))]

    def retrieved(self, item: Item) -> list[Message]:
        queries = item.get("queries")
        texts = [queries] if isinstance(queries, str) else queries
        asked = [text for text in texts or () if isinstance(text, str)]
        called = _call(FILE_SEARCH, orjson.dumps({"queries": asked}).decode())
        results = item.get("results")
        if not isinstance(results, list):
            return [called]
        found = [_string(result.get("text")) for result in _dicts(results)]
        return [called, _output(FILE_SEARCH, _text("\n\n".join(filter(None, found))))]


_MAKE: Final[Mapping[str, Callable[[_Writer, Item], list[Message]]]] = {
    "message": _Writer.said,
    "reasoning": _Writer.reasoned,
    "function_call": _Writer.called,
    "function_call_output": _Writer.returned,
    "custom_tool_call": _Writer.called,
    "custom_tool_call_output": _Writer.returned,
    "mcp_call": _Writer.ran,
    "mcp_approval_request": _Writer.asks_approval,
    "mcp_approval_response": _Writer.answers_approval,
    "web_search_call": _Writer.searched,
    "code_interpreter_call": _Writer.computed,
    "file_search_call": _Writer.retrieved,
}


def _message(
    role: str,
    content: list[Item],
    *,
    name: str | None = None,
    channel: str | None = None,
    recipient: str | None = None,
    content_type: str | None = None,
) -> Message:
    return {
        "author": {"role": role, "name": name},
        "role": role,
        "name": name,
        "channel": channel,
        "recipient": recipient,
        "content": content,
        "content_type": content_type,
    }


def _call(name: str, content: str, content_type: str | None = _JSON) -> Message:
    return _message(
        "assistant",
        _text(content),
        channel="commentary",
        recipient=name,
        content_type=content_type,
    )


def _output(name: str | None, content: list[Item]) -> Message:
    return _message("tool", content, name=name, channel="commentary", recipient="assistant")


def _offered(tools: Sequence[Item]) -> list[Message]:
    """The client's own tools as a developer message; none where it has none."""
    functions = [
        {
            "name": tool["name"],
            "description": tool.get("description") or "",
            "parameters": tool.get("parameters"),
        }
        for tool in flatten({"tools": tools}).body.get("tools", ())
        if tool["type"] in _CALLABLE
    ]
    if not functions:
        return []
    namespace = {"name": "functions", "description": None, "tools": functions}
    return [_message("developer", [{"type": DEVELOPER, "tools": {"functions": namespace}}])]


def _hosted_name(item: Item) -> str:
    label = _string(item.get("server_label"))
    return f"{PYTHON if label == PYTHON_LABEL else label}.{_string(item.get('name'))}"


def _items(given: str | list[Item]) -> list[Item]:
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return given


def _is_system(item: Item) -> bool:
    return item_type(item) == "message" and item.get("role") == "system"


def _text(text: str) -> list[Item]:
    return [{"type": "text", "text": text}]


def _parts(content: Any) -> list[Item]:
    """A content as parts: texts in this form, any other as it came."""
    if isinstance(content, str):
        return _text(content)
    made = []
    for part in _dicts(content):
        field = TEXT_PARTS.get(_string(part.get("type")))
        made += [part] if field is None else _text(_string(part.get(field)))
    return made


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _dicts(value: Any) -> list[Item]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
