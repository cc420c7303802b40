"""Conversations that the router compacts itself, where an endpoint has no way to: a model writes a
summary, and the client brings it back in a ``compaction`` item that only a router can read.

A window is what is left of a conversation: the system and developer messages, the newest messages
of the user, and the summary, which stands for everything else. OpenAI's ``/responses/compact``
keeps the user's messages too, and Codex expects it of whoever compacts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.dialects.hosted_items import as_function_items
from router.dialects.responses.input_items import item_type
from router.dialects.system_messages import SYSTEM_ROLES
from router.response.tokens import estimate_tokens, prompt_chars

__all__ = [
    "COMPACTION_MARK",
    "KEPT_TOKENS",
    "Summary",
    "kept_items",
    "own_compactions",
    "pending_messages",
    "summary_request",
    "summary_text",
    "window",
    "with_summaries",
]

Item = dict[str, Any]

COMPACTION_MARK: Final = "pmc1."
"""What the ``encrypted_content`` of a ``compaction`` item begins with that a router made."""

KEPT_TOKENS: Final = 64_000
"""So much of the user's messages stays beside a summary, as with OpenAI's."""

_NO_TEXT: Final = {"input_audio": "audio", "input_file": "file", "input_image": "image"}
_CALLABLE: Final = frozenset({"custom", "function", "namespace"})

_SAME: Final = (
    "cache_salt",
    "instructions",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "user",
)
"""Fields of a request that its summary is asked for with, too."""

_OF_THE_MODEL: Final = frozenset({"reasoning"})
"""Those of them that another model may not know."""

_ORDER: Final = (
    "Do not go on with the task, and call no tools. Write a summary of this conversation instead, "
    "for another model that has to carry on with it and will see nothing of it but your summary "
    "and the user's latest messages. Include:\n"
    "- what the user wants, with every requirement, limit and preference that still holds\n"
    "- what has been done and decided, and why\n"
    "- facts that are needed again: names, paths, identifiers, values, results of tools, errors\n"
    "- what is under way, what is left to do, and the next step\n"
    "Take over what an earlier summary says. Be complete but brief. Answer with the summary only."
)
_INTRODUCTION: Final = (
    "The conversation up to here was compacted. This summary of it, written by a model, stands for "
    "the messages, tool calls and results that were left out. Go on from there, and do not repeat "
    "what has been done.\n\n"
)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a ``compaction`` item of the router's holds.

    ``kept`` is how many tokens of the user's messages before it are kept beside it. ``pending``:
    the messages right before it wait for an answer, and come after the summary.
    """

    text: str
    kept: int = KEPT_TOKENS
    pending: bool = False

    def dumped(self) -> bytes:
        """As it is encrypted."""
        return orjson.dumps({"text": self.text, "kept": self.kept, "pending": self.pending})

    @classmethod
    def loaded(cls, data: bytes) -> Summary:
        """What was dumped, by this version or a later one."""
        given = orjson.loads(data)
        return cls(given["text"], given["kept"], given["pending"])

    def item(self) -> Item:
        """The message by which a model is told."""
        text = {"type": "input_text", "text": _INTRODUCTION + self.text}
        return {"type": "message", "role": "user", "content": [text]}


def own_compactions(items: Sequence[Item]) -> dict[int, str]:
    """The encrypted content of items that a router made, by their places."""
    found = {}
    for index, item in enumerate(items):
        if item.get("type") == "compaction":
            content = item.get("encrypted_content")
            if isinstance(content, str) and content.startswith(COMPACTION_MARK):
                found[index] = content
    return found


def with_summaries(items: Sequence[Item], summaries: Mapping[int, Summary]) -> list[Item]:
    """The items as a model is to see them, with the last of the ``summaries`` in the place of all
    that it stands for.
    """
    if not summaries:
        return list(items)
    last = max(summaries)
    return [*window(items[:last], summaries[last]), *items[last + 1 :]]


def window(items: Sequence[Item], summary: Summary) -> list[Item]:
    """What is left of the items that ``summary`` is of."""
    pending = pending_messages(items) if summary.pending else []
    before = items[: len(items) - len(pending)]
    return [*kept_items(before, summary.kept), summary.item(), *pending]


def kept_items(items: Sequence[Item], left: int) -> list[Item]:
    """What stays of the items as it is: ``left`` tokens of the user's newest messages."""
    kept: list[Item] = []
    for item in reversed(items):
        if _is_lasting(item):
            kept.append(item)
        elif left >= 0 and _is_users(item):
            left -= _tokens(item)
            if left >= 0:
                kept.append(item)
    kept.reverse()
    return kept


def pending_messages(items: Sequence[Item]) -> list[Item]:
    """The user's messages at the end, which nobody has answered."""
    count = 0
    for item in reversed(items):
        if not _is_users(item):
            break
        count += 1
    return list(items[len(items) - count :])


def summary_request(
    body: Mapping[str, Any], items: Sequence[Item], model: str, *, same_model: bool
) -> dict[str, Any]:
    """The request for a summary of ``items``, the input of ``body``.

    It begins like the request itself, whose prompt the endpoint may still have in its cache. What
    does not fit into the context is left out, oldest first. Another model may not see images, nor
    read files: it is told that they were there.
    """
    asked = {
        name: value
        for name in _SAME
        if (value := body.get(name)) is not None and (same_model or name not in _OF_THE_MODEL)
    }
    tools = [tool for tool in body.get("tools") or () if tool.get("type") in _CALLABLE]
    if tools:
        asked |= {"tools": tools, "tool_choice": "none"}
    items = as_function_items(list(items))
    text = {"type": "input_text", "text": _ORDER}
    order = {"type": "message", "role": "user", "content": [text]}
    return {
        **asked,
        "model": model,
        "input": [*(items if same_model else map(_in_words, items)), order],
        "store": False,
        "stream": False,
        "truncation": "auto",
    }


def summary_text(response: Mapping[str, Any]) -> str:
    """The text of a Response; empty where it has none, or did not come to an end by itself other
    than by its length.
    """
    details = response.get("incomplete_details") or {}
    if response.get("status") != "completed" and details.get("reason") != "max_output_tokens":
        return ""
    texts = [
        part["text"]
        for item in response.get("output") or ()
        if item.get("type") == "message"
        for part in item.get("content") or ()
        if part.get("type") == "output_text" and isinstance(part.get("text"), str)
    ]
    return "\n\n".join(filter(None, map(str.strip, texts)))


def _in_words(item: Item) -> Item:
    """The item, with words in the place of what is no text."""
    for name in ("content", "output"):
        parts = item.get(name)
        if isinstance(parts, list) and any(part.get("type") in _NO_TEXT for part in parts):
            told = [
                {"type": "input_text", "text": f"[{_NO_TEXT[part['type']]}]"}
                if part.get("type") in _NO_TEXT
                else part
                for part in parts
            ]
            item = {**item, name: told}
    return item


def _is_lasting(item: Item) -> bool:
    kind = item_type(item)
    return kind == "additional_tools" or (kind == "message" and item.get("role") in SYSTEM_ROLES)


def _is_users(item: Item) -> bool:
    return item_type(item) == "message" and item.get("role") == "user"


def _tokens(item: Item) -> int:
    return estimate_tokens(prompt_chars({"input": [item]}))
