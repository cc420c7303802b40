"""What a Response object repeats of its request: values of fields, and the items.

Clients write items loosely: a string for a message, no ids, no status. Everybody who reads them
later (a list of input items, a conversation, the next turn of a history) sees them in full.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from typing import Any, Final

from router.dialects.responses.input_items import TEXT_PARTS, item_type

__all__ = [
    "ID_PREFIXES",
    "ids_of",
    "shown_conversation",
    "shown_metadata",
    "shown_reasoning",
    "shown_text",
    "shown_tools",
    "stored_items",
    "without_credentials",
    "without_secrets",
]

_TEXT_FORMAT: Final = {"type": "text"}

_SECRETS: Final[Mapping[str, frozenset[str]]] = {"mcp": frozenset({"authorization", "headers"})}
"""Fields of a tool that carry credentials: a Response may be stored and shown to others."""

_TOOL_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "file_search": {"vector_store_ids": []},
    "code_interpreter": {"container": {"type": "auto"}},
}
"""Required in a Response, but often left out of a request."""


def shown_metadata(given: dict[str, Any] | None) -> dict[str, Any]:
    """``metadata`` as a Response repeats it."""
    return given or {}


def shown_reasoning(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """``reasoning`` as a Response repeats it."""
    given = given or {}
    # generate_summary is the older name of summary.
    summary = given.get("summary") or given.get("generate_summary")
    return {"effort": given.get("effort"), "summary": summary}


def shown_text(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """``text`` as a Response repeats it."""
    given = given or {}
    form = given.get("format")
    return {
        "format": dict(_TEXT_FORMAT) if form is None else _format(form),
        "verbosity": given.get("verbosity") or "medium",
    }


def _format(given: Mapping[str, Any]) -> dict[str, Any]:
    if given["type"] != "json_schema":
        return {"type": given["type"]}
    shown = {"type": "json_schema", "name": given["name"], "schema": given["schema"]}
    if given.get("description") is not None:
        shown["description"] = given["description"]
    shown["strict"] = given.get("strict") is True
    return shown


def without_secrets(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as it may be shown: without nulls and credentials."""
    encrypted_reasoning = _SECRETS.get(tool["type"], ())
    return {k: v for k, v in tool.items() if v is not None and k not in encrypted_reasoning}


def without_credentials(tools: Any) -> Any:
    """The tools as an endpoint repeats them, whatever that is, but for credentials."""
    if not isinstance(tools, list):
        return tools
    return [_masked(tool) for tool in tools]


def _masked(tool: Any) -> Any:
    kind = tool.get("type") if isinstance(tool, dict) else None
    encrypted_reasoning = _SECRETS.get(kind) if isinstance(kind, str) else None
    return (
        tool
        if encrypted_reasoning is None
        else {k: v for k, v in tool.items() if k not in encrypted_reasoning}
    )


def shown_tools(given: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """``tools`` as a Response repeats them: in full, without credentials."""
    return list(map(_tool, given)) if given else []


def shown_conversation(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """``conversation`` as a Response repeats it: ``{"id"}``."""
    return {"id": given if isinstance(given, str) else given["id"]}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    kind = tool["type"]
    given = without_secrets(tool)
    if kind != "function":
        return {**_TOOL_DEFAULTS.get(kind, {}), **given}
    return {
        "type": "function",
        "description": None,
        "name": tool["name"],
        "parameters": None,
        "strict": True,
        **given,
    }


ID_PREFIXES: Final[Mapping[str, str]] = {
    "message": "msg_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
    "reasoning": "rs_",
    "additional_tools": "at_",
    "apply_patch_call": "apc_",
    "apply_patch_call_output": "apco_",
    "code_interpreter_call": "ci_",
    "compaction": "cmp_",
    "computer_call": "cu_",
    "computer_call_output": "cuo_",
    "file_search_call": "fs_",
    "image_generation_call": "ig_",
    "local_shell_call": "lsh_",
    "local_shell_call_output": "lsho_",
    "mcp_approval_request": "mcpr_",
    "mcp_approval_response": "mcpa_",
    "mcp_call": "mcp_",
    "mcp_list_tools": "mcpl_",
    "program": "prog_",
    "program_output": "progo_",
    "shell_call": "sh_",
    "shell_call_output": "sho_",
    "tool_search_call": "tsc_",
    "tool_search_output": "tso_",
    "web_search_call": "ws_",
}
"""What the id of each type of item begins with."""

_DONE: Final[Mapping[str, str | None]] = {"status": "completed"}
_DEFAULTS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "function_call": _DONE,
    "function_call_output": _DONE,
    "custom_tool_call": _DONE,
    "custom_tool_call_output": _DONE,
    "computer_call_output": _DONE,
    "code_interpreter_call": {"code": None, "outputs": None},
    "image_generation_call": {"result": None},
    "shell_call": {**_DONE, "environment": None},
    "shell_call_output": {**_DONE, "max_output_length": None},
    "tool_search_call": {**_DONE, "call_id": None, "execution": "client"},
    "tool_search_output": {**_DONE, "call_id": None, "execution": "client"},
}
"""What a listed item must have, and an item of a request may leave out.

Any other null is dropped: it is what a client's library writes for a field that is not there.
"""

_PART_DEFAULTS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "input_image": {"detail": "auto"},
    "computer_screenshot": {"image_url": None, "file_id": None, "detail": "auto"},
}
_NONE: Final[Mapping[str, str | None]] = {}
_STATUSES: Final = frozenset({"in_progress", "completed", "incomplete"})
_WITH_PARTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})

_NOT_STORED: Final = "compaction_trigger"
"""An order for the request that holds it, not a part of the history."""

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


def ids_of(items: str | list[dict[str, Any]] | None) -> frozenset[str]:
    """The ids of an input's items; a text has none."""
    if not isinstance(items, list):
        return frozenset()
    return frozenset(item["id"] for item in items if isinstance(item.get("id"), str))


def stored_items(
    given: str | list[dict[str, Any]],
    new_id: Callable[[str], str],
    taken: Container[str] = (),
) -> list[dict[str, Any]]:
    """A request's own input, valid by ``check_items``, as it is stored: full and with ids.

    A client's id is kept if it looks like one, is not in ``taken`` and was not used before in
    this list; any other item gets ``new_id(prefix)``. References have to be resolved before.
    Nothing in ``given`` is changed, but what needs no change is shared with it.
    """
    if isinstance(given, str):
        return [
            {
                "id": new_id("msg_"),
                "type": "message",
                "status": "completed",
                "content": [{"type": "input_text", "text": given}],
                "role": "user",
            }
        ]
    used: set[str] = set()
    stored = []
    for item in given:
        kind = item_type(item)
        if kind == _NOT_STORED:
            continue
        ident = item.get("id")
        if (
            not isinstance(ident, str)
            or ident in used
            or ident in taken
            or not _ID.fullmatch(ident)
        ):
            ident = new_id(ID_PREFIXES[kind])
        used.add(ident)
        stored.append(_message(item, ident) if kind == "message" else _item(item, kind, ident))
    return stored


def _message(item: Mapping[str, Any], ident: str) -> dict[str, Any]:
    role = item["role"]
    stored: dict[str, Any] = {
        "id": ident,
        "type": "message",
        "status": _status(item.get("status")),
        "content": _parts(item["content"], spoken=role == "assistant"),
        "role": role,
    }
    return _filled(stored, item, _NONE)


def _item(item: Mapping[str, Any], kind: str, ident: str) -> dict[str, Any]:
    defaults = _DEFAULTS.get(kind, _NONE)
    stored = _filled({"id": ident, "type": kind}, item, defaults)
    if defaults is _DONE:
        stored["status"] = _status(stored["status"])
    if kind in _WITH_PARTS:
        if type(stored["output"]) is list:
            stored["output"] = _parts(stored["output"], spoken=False)
    elif kind == "reasoning":
        stored.setdefault("summary", [])
    return stored


def _status(given: Any) -> str:
    return given if isinstance(given, str) and given in _STATUSES else "completed"


def _parts(content: str | list[dict[str, Any]], *, spoken: bool) -> list[dict[str, Any]]:
    """Typed content parts; ``spoken`` says that they are the model's."""
    if isinstance(content, str):
        return [_text_of({"text": content}, spoken=spoken)]
    return [_part(part, part["type"], spoken=spoken) for part in content]


def _part(part: Mapping[str, Any], kind: str, *, spoken: bool) -> dict[str, Any]:
    """One part. A text is of the type that its speaker uses, whatever the client called it."""
    if kind not in TEXT_PARTS or (kind == "refusal" and spoken):
        return _filled({"type": kind}, part, _PART_DEFAULTS.get(kind, _NONE))
    if kind == ("output_text" if spoken else "input_text"):
        return _text_of(part, spoken=spoken)
    return _text_of({"text": part[TEXT_PARTS[kind]]}, spoken=spoken)


def _text_of(given: Mapping[str, Any], *, spoken: bool) -> dict[str, Any]:
    if not spoken:
        return _filled({"type": "input_text"}, given, _NONE)
    text = _filled({"type": "output_text"}, given, _NONE)
    text.setdefault("annotations", [])
    text.setdefault("logprobs", [])
    return text


def _filled(
    stored: dict[str, Any], given: Mapping[str, Any], defaults: Mapping[str, str | None]
) -> dict[str, Any]:
    """``stored``, with what ``given`` and ``defaults`` have beside it."""
    for name, value in given.items():
        if value is not None and name not in stored:
            stored[name] = value
    for name, default in defaults.items():
        stored.setdefault(name, default)
    return stored
