"""Messages as responses show them, and the items that they stand for."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Item = dict[str, Any]

TOOL: Item = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


def text(value: str) -> list[Item]:
    return [{"type": "text", "text": value}]


def message(role: str, content: Any, **fields: Any) -> Item:
    name = fields.pop("name", None)
    content = text(content) if isinstance(content, str) else content
    made = {"author": {"role": role, "name": name}, "role": role, "name": name}
    rest = {"channel": None, "recipient": None, "content": content, "content_type": None}
    return {**made, **rest, **fields}


def call(recipient: str, content: str, content_type: str | None = "json", **fields: Any) -> Item:
    given = {"channel": "commentary", "recipient": recipient, "content_type": content_type}
    return message("assistant", content, **given, **fields)


def told(name: str | None, content: Any, **fields: Any) -> Item:
    return message(
        "tool", content, name=name, channel="commentary", recipient="assistant", **fields
    )


def said(value: str, **fields: Any) -> Item:
    return message("assistant", value, channel="final", **fields)


def item(role: str, value: str) -> Item:
    return {"type": "message", "role": role, "content": value}


SYSTEM = message("system", "")
FUNCTION_CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'}
FUNCTION_OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
CALLED = call("functions.f", '{"a":1}', call_id="c1")
RETURNED = told("functions.f", "42", call_id="c1")
CUSTOM_CALL = {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "go"}
THOUGHT = {
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "hm"}],
}
MCP = {
    "type": "mcp_call",
    "id": "mcp_1",
    "server_label": "wiki",
    "name": "look_up",
    "arguments": '{"q":"x"}',
    "output": "found",
    "error": None,
}
ASKED = {**{k: MCP[k] for k in ("server_label", "name", "arguments")}, "id": "mcpr_1"}
ASKED["type"] = "mcp_approval_request"
ANSWER = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q"}}
IMAGE = {"type": "input_image", "image_url": "https://a.example/b.png"}


WIKI = call("wiki.look_up", '{"q":"x"}')
VALUE: Any = st.sampled_from(
    [
        None,
        "",
        "x",
        7,
        [],
        {},
        "functions.f",
        "wiki.f",
        "python",
        "analysis",
        text("x"),
        [IMAGE],
        [7],
    ]
)
