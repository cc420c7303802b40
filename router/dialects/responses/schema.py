"""The body of ``POST /v1/responses``: parsing, validation, and what is kept of it: the fields that
its answer repeats, and its items.

It runs for every request, so it is driven by a table and looks at the fields that are there:
``null`` counts as absent, unknown fields pass. What may be wrong with a field is in
``fields.FIELDS``, what may be wrong between fields in ``validate_create``.

Clients write items loosely: a string for a message, no ids, no status. Everybody who reads them
later (a list of input items, a conversation, the next turn of a history) sees them in full.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from typing import Any, Final

import orjson

from router.dialects.parameters import missing
from router.dialects.responses.fields import (
    ALWAYS_ECHOED,
    CHECKS,
    ECHOED_AS,
    ECHOED_WHERE_GIVEN,
    PLAIN_VALUES,
)
from router.dialects.responses.input_items import TEXT_PARTS, item_type, looks_up
from router.errors import InvalidRequest

__all__ = [
    "ID_PREFIXES",
    "check_fields",
    "echo_fields",
    "ids_of",
    "involves_compacting",
    "parse_create",
    "parse_object",
    "refers",
    "stored_items",
    "validate_create",
]

_MAX_DEPTH: Final = 200
_EARLIER_INPUT: Final = (
    "previous_response_id",
    "conversation",
    "prompt",
    "previous_input_messages",
)

_COMPACTING: Final = frozenset({"compaction", "compaction_trigger"})

_ECHOED: Final = orjson.dumps(ALWAYS_ECHOED)
"""Read anew for each answer, so that no two share what may change."""


def parse_object(raw: bytes) -> dict[str, Any]:
    """A request body as an object; raise InvalidRequest (``invalid_json``, ``invalid_type``)."""
    if not raw:
        raise InvalidRequest("Invalid body: it is empty. Send a JSON object.", code="invalid_json")
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise InvalidRequest(
            f"Invalid body: it is not valid JSON (line {exc.lineno}, column {exc.colno}: "
            f"{exc.msg}).",
            code="invalid_json",
        ) from None
    if type(body) is not dict:
        raise InvalidRequest(
            "Invalid body: expected a JSON object, but got another type.", code="invalid_type"
        )
    if len(raw) >= 2 * _MAX_DEPTH:
        _refuse_deep(body)
    return body


def parse_create(
    raw: bytes, *, stream: bool | None = None, any_model: bool = False
) -> dict[str, Any]:
    """``parse_object`` and ``validate_create`` in one; the body has this ``stream`` unless it is
    None.
    """
    body = parse_object(raw)
    if stream is not None:
        body["stream"] = stream
    validate_create(body, any_model=any_model)
    return body


def validate_create(body: dict[str, Any], *, any_model: bool = False) -> None:
    """Check a parsed body; raise InvalidRequest with the code and the path of the field.

    The model may be left out with ``any_model``, and where there is a prompt, which may have one.
    """
    get = body.get
    if get("conversation") is not None and get("previous_response_id") is not None:
        raise InvalidRequest(
            "Mutually exclusive parameters: send either 'previous_response_id' or "
            "'conversation', not both.",
            code="mutually_exclusive_parameters",
        )
    if get("model") in (None, "") and not any_model and get("prompt") is None:
        raise missing("model")
    check_fields(body)
    if get("input") in (None, []) and not _has_earlier_input(body):
        raise missing("input")
    if get("background") is True and get("store") is False:
        raise InvalidRequest(
            "Unsupported parameter: 'background' needs 'store' to be true, because its answer is "
            "fetched later.",
            code="unsupported_parameter",
            param="background",
        )


def check_fields(body: Mapping[str, Any]) -> None:
    """Check each field by itself; raise InvalidRequest."""
    for name, value in body.items():
        if value is not None and type(value) is not PLAIN_VALUES.get(name):
            check = CHECKS.get(name)
            if check is not None:
                check(value, name)


def refers(body: Mapping[str, Any]) -> bool:
    """Whether there is more to the request's input than it says."""
    if body.get("previous_response_id") or body.get("conversation"):
        return True
    items = body.get("input")
    return isinstance(items, list) and any(map(looks_up, items))


def involves_compacting(body: Mapping[str, Any]) -> bool:
    """Whether there is anything in a Responses request that is about compacting."""
    if body.get("context_management"):
        return True
    items = body.get("input")
    if isinstance(items, list):
        for item in items:
            if item.get("type") in _COMPACTING:
                return True
    return False


def echo_fields(body: Mapping[str, Any], *, model: str) -> dict[str, Any]:
    """What a Response repeats of a validated request body; nothing in ``body`` is changed.

    ``model`` is the name to show. ``conversation`` and ``prompt`` are there only when the
    request has them, the former always as ``{"id"}``. Values are shared with ``body``.
    """
    echo: dict[str, Any] = orjson.loads(_ECHOED)
    for name, value in body.items():
        if value is not None and name in ALWAYS_ECHOED:
            show = ECHOED_AS.get(name)
            echo[name] = value if show is None else show(value)
    echo["model"] = model
    for name, shown in ECHOED_WHERE_GIVEN:
        value = body.get(name)
        if value is not None:
            echo[name] = value if shown is None else shown(value)
    return echo


def _refuse_deep(body: dict[str, Any]) -> None:
    """orjson reads 1024 levels but writes 254; translation wraps a few around what it is given."""
    level: list[Any] = [body]
    depth = 0
    while level:
        depth += 1
        if depth > _MAX_DEPTH:
            raise InvalidRequest(
                f"Invalid body: it is nested more than {_MAX_DEPTH} levels deep.",
                code="invalid_value",
            )
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]


def _has_earlier_input(body: Mapping[str, Any]) -> bool:
    return any(body.get(name) not in (None, []) for name in _EARLIER_INPUT)


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
    "additional_tools": {"role": "developer"},
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
