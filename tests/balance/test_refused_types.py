"""Which refusals say that a type of tool or item is not known."""

from __future__ import annotations

from typing import Any

import pytest

from router.balance.refused_types import late_types, may_name_types, refused_types

FUNCTION = {"type": "function", "name": "f"}
BODY: dict[str, Any] = {
    "tools": [
        FUNCTION,
        {"type": "namespace", "name": "n", "tools": [{**FUNCTION, "defer_loading": True}]},
        {"type": "tool_search", "execution": "client"},
        {"type": "custom", "name": "patch"},
        {"type": "web_search"},
    ],
    "input": [
        {"type": "message", "role": "user", "content": "Which namespace?"},
        {"role": "assistant", "content": "x", "phase": "commentary"},
        {"type": "function_call", "call_id": "c", "name": "f", "namespace": "n", "arguments": ""},
        {"type": "tool_search_call", "call_id": "d", "arguments": {}},
        {"type": "additional_tools", "tools": [{"type": "image_generation"}]},
    ],
}
OF_TOOLS = {"namespace", "tool_search", "custom", "web_search", "image_generation"}

OPENAI = "Invalid value: 'namespace'. Supported values are: 'function', 'custom', and 'web_search'."
VLLM = (
    '[{"type":"literal_error","loc":["body","tools",1,"function","type"],"msg":"Input should be '
    '\'function\'","input":"namespace","ctx":{"expected":"\'function\'"}}]'
)
TAGS = (
    "1 validation error for ResponsesRequest\ntools.1\n  Input tag 'namespace' found using 'type' "
    "does not match any of the expected tags: 'function', 'custom' [type=union_tag_invalid]"
)

REFUSED = [
    ("tools[1].type", OPENAI, {"namespace", "tool_search", "image_generation"}),
    (None, VLLM, {"namespace"}),
    (None, TAGS, {"namespace", "tool_search", "web_search", "image_generation"}),
    (None, "'type' of tool must be 'function'", OF_TOOLS),
    ("tools.1.type", "Invalid discriminator value. Expected 'function' | 'custom'",
     OF_TOOLS - {"custom"}),
    (None, "unsupported tool type: namespace", {"namespace"}),
    (None, "Unsupported tool type: web_search", {"web_search"}),
    ("tools[3].type", "Unsupported type.", {"custom"}),
    ("tools[2]", "Unknown type of tool.", {"tool_search"}),
    ("input[3]", "Unknown type of item.", {"tool_search_call"}),
    ("input[2].namespace", "Unknown parameter: 'input[2].namespace'.", {"namespace"}),
    ("input[1].phase", "Unknown parameter: 'input[1].phase'.", {"phase"}),
    (None, "unknown item type 'additional_tools'", {"additional_tools"}),
    (None, "The tool 'tool_search' is not supported with this model.", {"tool_search"}),
]  # fmt: skip

OTHERS = [
    (None, "The tool 'web_search' is not supported with this model."),
    ("input[0]", "Invalid type of item: the content is empty."),
    ("temperature", "Unsupported parameter: 'temperature'."),
    ("tools[0].name", "Invalid 'tools[0].name': unexpected characters in the field."),
    (None, "Please reduce the length of the messages."),
    (None, "Rate limit reached."),
]


@pytest.mark.parametrize(("param", "message", "types"), REFUSED)
def test_a_type_that_is_not_known(param: str | None, message: str, types: set[str]) -> None:
    assert refused_types(param, message, BODY) == types


@pytest.mark.parametrize(("param", "message"), OTHERS)
def test_another_refusal(param: str | None, message: str) -> None:
    assert not refused_types(param, message, BODY)


@pytest.mark.parametrize(("param", "message", "_"), REFUSED)
def test_a_request_without_late_types_is_refused_for_something_else(
    param: str | None, message: str, _: Any
) -> None:
    assert not refused_types(param, message, {"input": "hi", "tools": [FUNCTION]})


def test_types_of_a_request() -> None:
    assert late_types(BODY) == OF_TOOLS | {
        "additional_tools", "defer_loading", "phase", "tool_search_call"
    }  # fmt: skip
    assert not late_types({"input": "hi"})


@pytest.mark.parametrize(
    ("message", "may"),
    [
        (OPENAI, True),
        ("'type' of tool must be 'function'", True),
        ("unknown tool type", True),
        ("Unsupported item type: tool_search_output", True),
        ("pod evicted from namespace default", False),
        ("Internal server error", False),
        ("tool call parser failed", False),
    ],
)
def test_what_an_error_500_may_be_about(message: str, may: bool) -> None:
    assert may_name_types(message) is may
