"""Schemas of input items, content parts, tools and formats, shared by several families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.dialects.json_schema import (
    ANYTHING,
    Schema,
    any_of,
    array,
    asked,
    boolean,
    constant,
    enum,
    integer,
    mapping,
    metadata,
    nullable,
    ref,
    string,
    told,
)
from router.dialects.responses.input_items import ROLES, TEXT_PARTS

__all__ = ["SCHEMAS", "URL"]

URL: Final = "https://example.com/image.png"

_OTHER_ITEMS: Final = (
    "reasoning", "additional_tools", "apply_patch_call", "apply_patch_call_output",
    "code_interpreter_call", "compaction", "compaction_trigger", "computer_call",
    "computer_call_output", "file_search_call", "image_generation_call", "local_shell_call",
    "local_shell_call_output", "mcp_approval_request", "mcp_approval_response", "mcp_call",
    "mcp_list_tools", "program", "program_output", "shell_call", "shell_call_output",
    "tool_search_call", "tool_search_output", "web_search_call",
)  # fmt: skip
"""Types of items that are passed on as they are."""

_HOSTED: Final = (
    "web_search", "web_search_preview", "file_search", "code_interpreter", "mcp",
    "image_generation", "local_shell", "shell", "computer_use_preview", "computer_use", "computer",
    "apply_patch", "namespace", "tool_search", "programmatic_tool_calling",
)  # fmt: skip
_NAME: Final = string(minLength=1)


def _one_given(*names: str) -> list[Schema]:
    return [{"required": [name], "properties": {name: string()}} for name in names]


def _sourced(kinds: tuple[str, ...], names: tuple[str, ...]) -> Schema:
    """A part that needs one of these strings."""
    fields = dict.fromkeys((*names, "detail", "filename"), string())
    return asked({"type": enum(*kinds)}, fields, anyOf=_one_given(*names))


_TEXTUAL: Final = tuple(kind for kind, field in TEXT_PARTS.items() if field == "text")
_PARTS: Final[Mapping[str, Schema]] = {
    "TextPart": asked({"type": enum(*_TEXTUAL), "text": string()}),
    "RefusalPart": asked({"type": constant("refusal"), "refusal": string()}),
    "ImagePart": _sourced(("input_image", "computer_screenshot"), ("image_url", "file_id")),
    "FilePart": _sourced(("input_file",), ("file_data", "file_id", "file_url")),
    "AudioPart": asked({"type": constant("input_audio"), "input_audio": mapping(ANYTHING)}),
}
_CONTENT: Final = any_of(string(), array(any_of(*map(ref, _PARTS))))


def _called(kind: str, *names: str, output: bool = False) -> Schema:
    required = {"type": constant(kind), **dict.fromkeys(names, string())}
    return asked(required | ({"output": ref("Content")} if output else {}))


_ITEMS: Final[Mapping[str, Schema]] = {
    "Message": asked(
        {"role": enum(*ROLES), "content": ref("Content")}, {"type": constant("message")}
    ),
    "FunctionCall": _called("function_call", "call_id", "name", "arguments"),
    "FunctionCallOutput": _called("function_call_output", "call_id", output=True),
    "CustomToolCall": _called("custom_tool_call", "call_id", "name", "input"),
    "CustomToolCallOutput": _called("custom_tool_call_output", "call_id", output=True),
    "ItemReference": asked({"type": constant("item_reference"), "id": string()}),
    "OtherItem": {
        **asked({"type": enum(*_OTHER_ITEMS)}),
        "description": "Passed on as it is to endpoints that know it.",
    },
}
_ROLE: Final = enum("system", "developer", "user", "assistant", "tool")

SCHEMAS: Final[Mapping[str, Schema]] = {
    **_PARTS,
    "Content": {**_CONTENT, "description": "A text, or parts."},
    **_ITEMS,
    "InputItem": any_of(*map(ref, _ITEMS)),
    "Input": any_of(string(), array(ref("InputItem")), description="A text, or items."),
    "Tool": any_of(
        asked(
            {"type": constant("function"), "name": _NAME},
            {"description": string(), "parameters": mapping(ANYTHING), "strict": boolean()},
        ),
        asked({"type": constant("custom"), "name": _NAME}, {"description": string()}),
        asked({"type": enum(*_HOSTED)}),
        asked(
            {"type": string(pattern="^web_search(_preview)?_[0-9]{4}_[0-9]{2}_[0-9]{2}$")},
        ),
        description="A function, a custom tool, or one that is hosted by the endpoint.",
    ),
    "NamedTool": any_of(
        asked({"type": enum("function", "custom"), "name": _NAME}),
        asked({"type": enum(*_HOSTED)}),
    ),
    "ToolChoice": any_of(
        enum("none", "auto", "required"),
        ref("NamedTool"),
        asked(
            {
                "type": constant("allowed_tools"),
                "mode": enum("auto", "required"),
                "tools": array(ref("NamedTool")),
            }
        ),
    ),
    "Format": any_of(
        asked({"type": enum("text", "json_object")}),
        asked(
            {"type": constant("json_schema"), "name": string(), "schema": mapping(ANYTHING)},
            {"strict": boolean(), "description": string()},
        ),
    ),
    "PromptReference": asked(
        {},
        {
            "id": string("The prompt's id, or its name."),
            "name": string(),
            "version": any_of(
                string(pattern="^[1-9][0-9]{0,8}$"),
                integer(1, 999_999_999),
                description="The latest where it is left out.",
            ),
            "variables": mapping(
                any_of(
                    string(),
                    asked({"type": constant("input_text"), "text": string()}),
                    _sourced(("input_image",), ("image_url", "file_id")),
                    ref("FilePart"),
                    {"type": "null"},
                ),
                "Texts or parts for the `{{variables}}` of the prompt.",
            ),
        },
        anyOf=[
            {"required": [name], "properties": {name: string(minLength=1)}}
            for name in ("id", "name")
        ],
    ),
    "PreviousMessage": {
        **asked(
            {"content": any_of(string(), array(mapping(ANYTHING)))},
            {
                "author": asked({"role": _ROLE}, {"name": string()}),
                "role": _ROLE,
                "name": string(),
                "channel": string("`analysis`: what the model thought."),
                "recipient": string("Of a call: `functions.NAME`, or `LABEL.NAME`."),
                "call_id": string(),
            },
            anyOf=[
                {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
                for name in ("author", "role")
            ],
        ),
        "description": "A message as in `input_messages` and `output_messages`.",
    },
    "ResponseMessage": told(
        {
            "author": told({"role": _ROLE, "name": nullable(string())}),
            "role": _ROLE,
            "name": nullable(string()),
            "channel": nullable(enum("analysis", "commentary", "final")),
            "recipient": nullable(string("Of a call: `functions.NAME`, or `LABEL.NAME`.")),
            "content": array(mapping(ANYTHING)),
            "content_type": nullable(string()),
        },
        {"call_id": string()},
    ),
    "Metadata": metadata(),
    "Item": told(
        {"type": string()},
        {"id": nullable(string()), "status": nullable(string())},
        description="An item of an input or of an output: a message, a call, reasoning …",
    ),
}
"""Each by its name."""
