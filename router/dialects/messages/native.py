"""What of a client's request passes to an endpoint that speaks Messages itself, and how such a
request is taken that nothing else understands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.messages.fields import bad, given, need, objects

__all__ = ["outline_body", "passed_request_headers"]

_PREFIX: Final = "anthropic-"
_SECRETS: Final = ("auth", "key", "token")
_LONGEST_HEADER: Final = 4096
_NO_TEXT: Final = frozenset(
    {"cache_control", "data", "encrypted_content", "id", "signature", "type"}
)


def passed_request_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a client's request that go with it to an endpoint."""
    return {
        name.lower(): value
        for name, value in headers.items()
        if name.lower().startswith(_PREFIX)
        and len(value) <= _LONGEST_HEADER
        and value.isascii()
        and value.isprintable()
        and not any(secret in name.lower() for secret in _SECRETS)
    }


def outline_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Enough of a request that cannot be decoded to choose an endpoint for it, and to estimate its
    tokens: the texts of its messages. Raises InvalidRequest where there is no model, or no message.
    """
    items = [
        {
            "type": "message",
            "role": "assistant" if message.get("role") == "assistant" else "user",
            "content": _texts(message.get("content")),
        }
        for _, message in objects(need(body, "messages", list, ""), "messages")
    ]
    made: dict[str, Any] = {
        "model": need(body, "model", str, ""),
        "input": items,
        "store": False,
        "stream": given(body, "stream", bool, "") or False,
    }
    if not made["model"]:
        raise bad("model", "String should have at least 1 character")
    limit = given(body, "max_tokens", int, "")
    if limit is not None and limit > 0:
        made["max_output_tokens"] = limit
    if instructions := _texts([body.get("system"), body.get("tools")]):
        made["instructions"] = instructions
    return made


def _texts(content: Any) -> str:
    """The texts in some content, whatever its form; no data, no signatures."""
    texts: list[str] = []
    todo = [content]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            todo += reversed(value)
        elif isinstance(value, dict):
            todo += [inner for name, inner in value.items() if name not in _NO_TEXT]
    return "\n".join(texts)
