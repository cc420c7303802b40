"""What is checked of a chat's messages where they are to be translated."""

from __future__ import annotations

from typing import Any, Final

from router.dialects.chat.schema import kind_of, needed
from router.dialects.parameters import array, bad_value, object_, string, wrong_type
from router.errors import InvalidRequest

__all__ = ["check_messages"]

_ROLES: Final = ("developer", "system", "user", "assistant", "tool")
_PLAIN: Final = ("user", "assistant", "system", "developer")

_TEXT: Final = ("text",)
_SAID: Final = ("text", "refusal")
_SHOWN: Final = ("text", "image_url", "file", "input_audio")
_PARTS: Final = {"developer": _TEXT, "system": _TEXT, "assistant": _SAID}
_CALLS: Final = {"function": "arguments", "custom": "input"}
_FILE: Final = ("file_data", "file_id", "filename")


def check_messages(messages: list[dict[str, Any]]) -> None:
    """Check messages, which are objects; raises InvalidRequest with the path of the field, also
    for what no translation can carry: functions in their old form, audio.
    """
    if not messages:
        raise InvalidRequest(
            "Invalid 'messages': empty array. Expected an array with minimum length 1.",
            code="empty_array",
            param="messages",
        )
    for index, message in enumerate(messages):
        is_text = len(message) == 2 and type(message.get("content")) is str
        if not is_text or message.get("role") not in _PLAIN:
            _check_message(message, f"messages[{index}]")


def _check_message(message: dict[str, Any], where: str) -> None:
    role = needed(message, "role", where, string)
    if role == "function":
        raise _old(f"{where}.role")
    if role not in _ROLES:
        raise bad_value(f"{where}.role", role, _ROLES)
    if role == "assistant":
        _check_assistant(message, where)
        return
    if role == "tool":
        needed(message, "tool_call_id", where, string)
    _check_content(needed(message, "content", where, _text_or_parts), where, role)


def _check_assistant(message: dict[str, Any], where: str) -> None:
    if message.get("function_call") is not None:
        raise _old(f"{where}.function_call")
    if message.get("audio") is not None:
        raise _no_audio(f"{where}.audio")
    calls = message.get("tool_calls")
    if calls is not None:
        array(calls, f"{where}.tool_calls")
    if (content := message.get("content")) is not None:
        _text_or_parts(content, f"{where}.content")
        _check_content(content, where, "assistant")
    if (refusal := message.get("refusal")) is not None:
        string(refusal, f"{where}.refusal")
    for index, call in enumerate(calls or ()):
        _check_call(call, f"{where}.tool_calls[{index}]")


def _check_call(call: Any, where: str) -> None:
    object_(call, where)
    # Not every client names the type of the only kind of call that there used to be.
    kind = kind_of({"type": "function", **call}, where, tuple(_CALLS))
    needed(call, "id", where, string)
    given, where = needed(call, kind, where, object_), f"{where}.{kind}"
    for name in ("name", _CALLS[kind]):
        needed(given, name, where, string)


def _check_content(content: str | list[Any], where: str, role: str) -> None:
    if type(content) is list:
        supported = _PARTS.get(role, _SHOWN)
        for index, part in enumerate(content):
            place = f"{where}.content[{index}]"
            object_(part, place)
            _check_part(part, place, kind_of(part, place, supported))


def _check_part(part: dict[str, Any], where: str, kind: str) -> None:
    if kind == "input_audio":
        raise _no_audio(where)
    if kind in _SAID:
        needed(part, kind, where, string)
        return
    given, where = needed(part, kind, where, object_), f"{where}.{kind}"
    if kind == "image_url":
        if given.get("detail"):
            string(given["detail"], f"{where}.detail")
        needed(given, "url", where, string)
        return
    there = [name for name in _FILE if given.get(name)]
    for name in there:
        needed(given, name, where, string)
    if there in ([], ["filename"]):
        needed(given, "file_data", where, string)


def _text_or_parts(value: Any, param: str) -> None:
    if type(value) is not str and type(value) is not list:
        raise wrong_type(param, "a string or an array of content parts", value)


def _old(where: str) -> InvalidRequest:
    return _unsupported(
        where,
        "of the old form of tool calls. Send 'tool_calls', and their results in messages with the "
        "role 'tool'.",
    )


def _no_audio(where: str) -> InvalidRequest:
    return _unsupported(
        where, "audio, which this model's endpoint does not take. Send text or images."
    )


def _unsupported(where: str, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"Unsupported value: '{where}' is {what}", code="unsupported_value", param=where
    )
