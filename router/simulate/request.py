"""Reading a Responses request: items into messages, tools, the options of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from router.simulate.chat import read_function, read_json_schema
from router.simulate.dialogue import FunctionCall, Message, Options, Role, SimulatedRequest, Tool
from router.simulate.fields import BadRequest, Fields

__all__ = ["read_messages", "read_question", "read_tools"]

_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
# Accepted, and never called: a simulated model has nothing to search or run.
_HOSTED: Final = (
    "code_interpreter",
    "computer_use_preview",
    "custom",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "shell",
    "web_search",
    "web_search_preview",
)
_Choice = Literal["auto", "none", "required"]


def read_question(fields: Fields, model: str) -> SimulatedRequest:
    """The whole request; raises BadRequest, naming the field, where it cannot be answered."""
    tools = read_tools(fields)
    choice, forced, allowed = _read_tool_choice(fields)
    if allowed is not None:
        tools = tuple(tool for tool in tools if tool.name in allowed)
    if forced is not None and forced not in {tool.name for tool in tools}:
        raise fields.invalid("tool_choice", f"the name of a function on offer, not '{forced}'")
    reasoning = fields.object("reasoning")
    schema, json_mode = _read_format(fields)
    options = Options(
        tool_choice=choice,
        forced=forced,
        parallel=fields.boolean("parallel_tool_calls", True),
        effort=reasoning.string("effort") if reasoning else None,
        max_tokens=fields.integer("max_output_tokens", 1),
        schema=schema,
        json_mode=json_mode,
        logprobs=_read_logprobs(fields),
    )
    return SimulatedRequest(model, read_messages(fields), tools, options)


def read_tools(fields: Fields) -> tuple[Tool, ...]:
    """The functions on offer; hosted tools are only checked to be known."""
    tools: list[Tool] = []
    for tool in fields.objects("tools"):
        kind = tool.need_string("type")
        if kind == "function":
            tools.append(read_function(tool))
        elif kind not in _HOSTED:
            raise tool.invalid("type", f"one of function, {', '.join(_HOSTED)}")
    return tuple(tools)


def read_messages(fields: Fields) -> tuple[Message, ...]:
    """The instructions and the input, in the order in which the model sees them."""
    messages: list[Message] = []
    if instructions := fields.string("instructions"):
        messages.append(Message("system", instructions))
    if isinstance(fields.raw.get("input"), str):
        return (*messages, Message("user", fields.raw["input"]))
    called: dict[str, str] = {}
    answered: set[str] = set()
    for item in fields.objects("input"):
        message = _read_item(item, called)
        if message is not None:
            called.update({call.id: call.name for call in message.calls})
            answered.add(message.call_id)
            messages.append(message)
    for call_id in called:
        if call_id not in answered:
            raise BadRequest(f"No tool output found for function call {call_id}.", param="input")
    return tuple(messages)


def _read_item(item: Fields, called: Mapping[str, str]) -> Message | None:
    match item.string("type") or "message":
        case "message":
            return _read_message(item)
        case "function_call":
            arguments = item.string("arguments") or ""
            call = FunctionCall(item.need_string("name"), arguments, item.need_string("call_id"))
            return Message("assistant", calls=(call,))
        case "function_call_output":
            call_id = item.need_string("call_id")
            if call_id not in called:
                raise BadRequest(
                    f"No tool call found for function call output with call_id {call_id}.",
                    param="input",
                )
            text, images, files = _read_content(item, "output")
            return Message("tool", text, images, files, call_id=call_id, name=called[call_id])
        case "item_reference":
            raise BadRequest(
                f"Item with id '{item.need_string('id')}' not found: this backend stores nothing.",
                param="input",
                status=404,
            )
    # Reasoning and the work of hosted tools: context that a simulated model does not need.
    return None


def _read_message(item: Fields) -> Message:
    role = item.choice("role", tuple(_ROLES))
    if role is None:
        raise item.missing("role")
    return Message(_ROLES[role], *_read_content(item, "content"))


def _read_content(item: Fields, key: str) -> tuple[str, int, int]:
    """The text under ``key``, and how many images and files there are."""
    if isinstance(item.raw.get(key), str):
        return item.raw[key], 0, 0
    if not item.has(key):
        raise item.missing(key)
    texts, images, files = [], 0, 0
    for part in item.objects(key):
        match part.need_string("type"):
            case "input_text" | "output_text" | "text":
                texts.append(part.string("text") or "")
            case "refusal":
                texts.append(part.string("refusal") or "")
            case "input_image":
                if not part.string("image_url") and not part.string("file_id"):
                    raise part.missing("image_url")
                images += 1
            case "input_file":
                files += 1
            case _:
                raise part.invalid(
                    "type", "input_text, input_image, input_file, output_text or refusal"
                )
    return "\n".join(texts), images, files


def _read_tool_choice(fields: Fields) -> tuple[_Choice, str | None, set[str] | None]:
    """How to choose, the function that must be called, the functions that may be called."""
    if not isinstance(fields.raw.get("tool_choice"), dict):
        return _mode(fields, "tool_choice"), None, None
    choice = fields.need_object("tool_choice")
    match choice.need_string("type"):
        case "function":
            return "auto", choice.need_string("name"), None
        case "allowed_tools":
            allowed = {tool.string("name") or "" for tool in choice.objects("tools")}
            return _mode(choice, "mode"), None, allowed
    raise choice.invalid("type", "function or allowed_tools: a simulated model calls functions")


def _mode(fields: Fields, key: str) -> _Choice:
    match fields.choice(key, ("auto", "none", "required")):
        case "none":
            return "none"
        case "required":
            return "required"
    return "auto"


def _read_logprobs(fields: Fields) -> int | None:
    top = fields.integer("top_logprobs", 0) or 0
    asked = top or "message.output_text.logprobs" in fields.strings("include")
    return top if asked else None


def _read_format(fields: Fields) -> tuple[Mapping[str, Any] | None, bool]:
    text = fields.object("text")
    wanted = text.object("format") if text else None
    if wanted is None:
        return None, False
    kind = wanted.choice("type", ("text", "json_object", "json_schema"))
    if kind == "json_schema":
        return read_json_schema(wanted), False
    return None, kind == "json_object"
