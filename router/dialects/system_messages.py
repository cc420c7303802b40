"""System messages as chat templates take them.

Templates of several model families (Qwen3.5, Mistral, Gemma …) raise an error for a system message
that is not the first message, or for a second one. Agents send both: instructions and developer
messages at the beginning, reminders in the middle of a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

__all__ = ["SYSTEM_ROLES", "SystemMessages", "joined", "rearranged"]

SystemMessages = Literal["merge", "keep", "user"]
"""What becomes of system messages after the first message that is none: they are merged into the
first system message, kept where they are, or sent as the user's text. Those before it are always
one message.
"""

SYSTEM_ROLES: Final = frozenset({"developer", "system"})


def joined(contents: Sequence[str | list[dict[str, Any]]]) -> str | list[dict[str, Any]]:
    """The contents of several messages as that of one: texts with a blank line between them, or
    all parts in a list where some are not text.
    """
    if len(contents) == 1:
        return contents[0]
    parts = [part for content in contents for part in _parts(content)]
    if all(part.get("type") == "text" for part in parts):
        return "\n\n".join([part["text"] for part in parts if part.get("text")])
    return parts


def rearranged(
    messages: Sequence[Mapping[str, Any]], later: SystemMessages
) -> list[Mapping[str, Any]]:
    """The messages of a Chat Completions request with one system message, at the beginning.

    Whatever has no role or content of the usual form stays as it is: that is for the endpoint to
    complain of.
    """
    first: list[Any] = []
    rest: list[Mapping[str, Any]] = []
    for message in messages:
        if not _is_system(message):
            rest.append(message)
        elif later == "merge" or not rest:
            first.append(message["content"])
        else:
            rest.append({**message, "role": "user" if later == "user" else "system"})
    return [{"role": "system", "content": joined(first)}, *rest] if first else rest


def _is_system(message: Any) -> bool:
    if not isinstance(message, Mapping) or message.get("role") not in SYSTEM_ROLES:
        return False
    content = message.get("content")
    if isinstance(content, list):
        return all(
            isinstance(part, dict)
            and (part.get("type") != "text" or isinstance(part.get("text"), str))
            for part in content
        )
    return isinstance(content, str)


def _parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
