"""Input items: what they are, and their validation.

Only what the router itself reads is looked at: kinds, roles, contents, call ids, and the tools that
an item brings. Everything else in an item is the business of the endpoint that understands it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.parameters import array, bad_value, missing, string, wrong_type
from router.dialects.responses.tools import check_execution, check_tools, is_sound_tool
from router.errors import InvalidRequest

__all__ = ["ROLES", "TEXT_PARTS", "check_items", "check_part", "is_sound", "item_type", "looks_up"]

ROLES: Final = ("user", "assistant", "system", "developer")

TEXT_PARTS: Final[Mapping[str, str]] = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
"""Content parts that are text, each with the field that holds it."""

_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "input_image": ("image_url", "file_id"),
    "computer_screenshot": ("image_url", "file_id"),
    "input_file": ("file_data", "file_id", "file_url"),
}
"""Content parts that need at least one of these strings."""

_PART_TYPES: Final = (*TEXT_PARTS, *_SOURCES, "input_audio")

_REQUIRED_STRINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id",),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id",),
    "item_reference": ("id",),
}

_WITH_OUTPUT: Final = frozenset({"function_call_output", "custom_tool_call_output"})

_NAMED_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_OF_TOOLS: Final = frozenset({"additional_tools", "tool_search_call", "tool_search_output"})
_BRING_TOOLS: Final = frozenset({"additional_tools", "tool_search_output"})

_ITEM_TYPES: Final = (
    "message",
    *_REQUIRED_STRINGS,
    "reasoning",
    "additional_tools",
    "apply_patch_call",
    "apply_patch_call_output",
    "code_interpreter_call",
    "compaction",
    "compaction_trigger",
    "computer_call",
    "computer_call_output",
    "file_search_call",
    "image_generation_call",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "program",
    "program_output",
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
)

_KNOWN_ITEMS: Final = frozenset(_ITEM_TYPES)


def item_type(item: Mapping[str, Any]) -> Any:
    """The item's type; without one it is a message, or a reference if it has nothing but an id."""
    kind = item.get("type")
    if kind is not None:
        return kind
    if item.get("role") is None and item.get("content") is None and item.get("id") is not None:
        return "item_reference"
    return "message"


def looks_up(item: Mapping[str, Any]) -> bool:
    """Whether there is more to an item than the client has sent."""
    kind = item_type(item)
    if kind == "item_reference":
        return True
    if kind != "reasoning" or item.get("encrypted_content") or item.get("content"):
        return False
    return isinstance(item.get("id"), str)


def check_items(items: list[Any], base: str) -> None:
    """Check a list of input items found at the path ``base``; raise InvalidRequest."""
    for i, item in enumerate(items):
        if type(item) is not dict:
            raise wrong_type(f"{base}[{i}]", "an object", item)
        kind = item_type(item)
        if kind == "message":
            _check_message(item, base, i)
        elif type(kind) is not str:
            raise wrong_type(f"{base}[{i}].type", "a string", kind)
        elif kind in _REQUIRED_STRINGS:
            _check_strings(item, _REQUIRED_STRINGS[kind], f"{base}[{i}]")
            if kind in _WITH_OUTPUT:
                _check_content(item.get("output"), f"{base}[{i}].output")
            if item.get("namespace") is not None:
                string(item["namespace"], f"{base}[{i}].namespace")
        elif kind in _OF_TOOLS:
            _check_of_tools(item, kind, f"{base}[{i}]")
        elif kind not in _KNOWN_ITEMS:
            raise bad_value(f"{base}[{i}].type", kind, _ITEM_TYPES)


def is_sound(item: Mapping[str, Any]) -> bool:
    """Whether what the router reads of an item is there: an endpoint may have made anything.

    Types of items and of parts that are not known are no fault.
    """
    kind = item_type(item)
    if kind == "message":
        return item.get("role") in ROLES and _is_sound_content(item.get("content"))
    if type(kind) is not str or kind == "item_reference":
        return False
    if any(type(item.get(name)) is not str for name in _REQUIRED_STRINGS.get(kind, ())):
        return False
    if kind in _NAMED_CALLS:
        return type(item.get("namespace")) in (str, type(None))
    if kind in _BRING_TOOLS:
        tools = item.get("tools")
        return type(tools) is list and all(map(is_sound_tool, tools))
    return kind not in _WITH_OUTPUT or _is_sound_content(item.get("output"))


def _is_sound_content(content: Any) -> bool:
    if type(content) is not list:
        return type(content) is str
    return all(map(_is_sound_part, content))


def _is_sound_part(part: Any) -> bool:
    if type(part) is not dict or type(part.get("type")) is not str:
        return False
    field = TEXT_PARTS.get(part["type"])
    return field is None or type(part.get(field)) is str


def _check_message(item: Mapping[str, Any], base: str, i: int) -> None:
    role = item.get("role")
    if role not in ROLES:
        where = f"{base}[{i}].role"
        if role is None:
            raise missing(where)
        if type(role) is not str:
            raise wrong_type(where, "a string", role)
        raise bad_value(where, role, ROLES)
    content = item.get("content")
    if type(content) is not str:
        _check_content(content, f"{base}[{i}].content")
    if item.get("phase") is not None:
        string(item["phase"], f"{base}[{i}].phase")


def _check_of_tools(item: Mapping[str, Any], kind: str, where: str) -> None:
    """A search for tools, what came of one, or tools that come with the input."""
    check_execution(item, where)
    if item.get("call_id") is not None:
        string(item["call_id"], f"{where}.call_id")
    if kind in _BRING_TOOLS:
        tools = item.get("tools")
        if tools is None:
            raise missing(f"{where}.tools")
        array(tools, f"{where}.tools")
        check_tools(tools, f"{where}.tools")


def _check_strings(item: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for name in names:
        value = item.get(name)
        if value is None:
            raise missing(f"{where}.{name}")
        if type(value) is not str:
            raise wrong_type(f"{where}.{name}", "a string", value)


def _check_content(content: Any, where: str) -> None:
    if type(content) is str:
        return
    if content is None:
        raise missing(where)
    if type(content) is not list:
        raise wrong_type(where, "a string or an array of content parts", content)
    for j, part in enumerate(content):
        if type(part) is not dict:
            raise wrong_type(f"{where}[{j}]", "an object", part)
        kind = part.get("type")
        field = TEXT_PARTS.get(kind) if type(kind) is str else None
        if field is None or type(part.get(field)) is not str:
            check_part(part, f"{where}[{j}]")


def check_part(part: Mapping[str, Any], where: str) -> None:
    """Check one content part found at the path ``where``; raise InvalidRequest."""
    kind = part.get("type")
    if kind is None:
        raise missing(f"{where}.type")
    if type(kind) is not str:
        raise wrong_type(f"{where}.type", "a string", kind)
    if kind in TEXT_PARTS:
        _check_strings(part, (TEXT_PARTS[kind],), where)
    elif kind in _SOURCES:
        _check_sources(part, _SOURCES[kind], where)
    elif kind == "input_audio":
        audio = part.get("input_audio")
        if audio is None:
            raise missing(f"{where}.input_audio")
        if type(audio) is not dict:
            raise wrong_type(f"{where}.input_audio", "an object", audio)
    else:
        raise bad_value(f"{where}.type", kind, _PART_TYPES)


def _check_sources(part: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    given = False
    for name in (*names, "detail", "filename"):
        value = part.get(name)
        if value is None:
            continue
        if type(value) is not str:
            raise wrong_type(f"{where}.{name}", "a string", value)
        given = given or name in names
    if not given:
        wanted = "' or '".join(names)
        raise InvalidRequest(
            f"Missing required parameter: '{where}' needs '{wanted}'.",
            code="missing_required_parameter",
            param=f"{where}.{names[0]}",
        )
