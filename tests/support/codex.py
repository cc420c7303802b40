"""What Codex 0.169 sends, cut short: its tools, its history, what it says of itself."""

from __future__ import annotations

from typing import Any

__all__ = ["CALL_ITEM", "FOUND", "SEARCH", "TOOLS", "request", "second_turn"]

Item = dict[str, Any]


def _function(name: str, description: str, **properties: Item) -> Item:
    return {
        "type": "function",
        "name": name,
        "description": description,
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": [],
            "additionalProperties": False,
        },
    }


_TEXT: Item = {"type": "string"}

SEARCH: Item = {
    "type": "tool_search",
    "execution": "client",
    "description": "# Tool discovery\n\nSearches over deferred tool metadata with BM25.",
    "parameters": {
        "type": "object",
        "properties": {"query": _TEXT, "limit": {"type": "number"}},
        "required": ["query"],
        "additionalProperties": False,
    },
}

PATCH: Item = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files. This is a FREEFORM tool.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin_patch end_patch"},
}

TOOLS: list[Item] = [
    _function("exec_command", "Runs a command in a PTY.", cmd=_TEXT),
    PATCH,
    {
        "type": "namespace",
        "name": "multi_agent_v1",
        "description": "Tools for spawning and managing sub-agents.",
        "tools": [
            _function("spawn_agent", "Spawns an agent.", message=_TEXT),
            _function("wait_agent", "Waits for agents.", ids=_TEXT),
        ],
    },
    {
        "type": "namespace",
        "name": "mcp__depot",
        "description": "Tools in the mcp__depot namespace.",
        "tools": [_function("echo_text", "Echo a text", text=_TEXT)],
    },
    SEARCH,
    {"type": "web_search", "external_web_access": False},
]

FOUND: Item = {
    "type": "namespace",
    "name": "mcp__calendar",
    "description": "Tools in the mcp__calendar namespace.",
    "tools": [{**_function("add", "Adds an event.", title=_TEXT), "defer_loading": True}],
}
"""What a search of the client's brings."""

CALL_ITEM: Item = {
    "type": "function_call",
    "call_id": "call_echo",
    "name": "echo_text",
    "namespace": "mcp__depot",
    "arguments": '{"text":"x"}',
}


def _message(role: str, text: str, **more: Any) -> Item:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return {"type": "message", "role": role, "content": content, **more}


def request(*more: Item, **fields: Any) -> Item:
    """The body of a turn: what every session begins with, and ``more`` items."""
    return {
        "model": "m",
        "input": [
            _message("developer", "You are a coding agent.", id="msg_ebef955b-f522-5f37-b26a-994e"),
            _message("developer", "<skills_instructions>\n## Skills\n</skills_instructions>"),
            _message("user", "<environment_context>\n</environment_context>"),
            _message("user", "Do it."),
            *more,
        ],
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "01a20f0f-9605-7e30-928d-a06432105a71",
        "client_metadata": {"session_id": "01a20f0f-9605-7e30-928d-a06432105a71"},
        **fields,
    }


def second_turn(**fields: Any) -> Item:
    """The same after a call of a tool in a namespace, a patch and a search."""
    return request(
        _message("assistant", "I look.", phase="commentary"),
        CALL_ITEM,
        {"type": "function_call_output", "call_id": "call_echo", "output": "echo: x"},
        {
            "type": "custom_tool_call",
            "call_id": "call_patch",
            "name": "apply_patch",
            "status": "completed",
            "input": "*** Begin Patch",
        },
        {"type": "custom_tool_call_output", "call_id": "call_patch", "output": "Done"},
        {
            "type": "tool_search_call",
            "call_id": "call_search",
            "execution": "client",
            "status": "completed",
            "arguments": {"query": "calendar", "limit": 3},
        },
        {
            "type": "tool_search_output",
            "call_id": "call_search",
            "execution": "client",
            "status": "completed",
            "tools": [FOUND],
        },
        **fields,
    )
