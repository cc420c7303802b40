"""A finished response as a message, and what a message's stream has in common with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.dialects.messages.server_tools import citations_of, use_and_result
from router.dialects.messages.thinking import Show, sign
from router.errors import UpstreamRejected

__all__ = [
    "ContentBlock",
    "blocks_of",
    "call_of",
    "error_of",
    "message_of",
    "outline",
    "stop_of",
    "usage_of",
]

_STOPS: Final[Mapping[Any, str]] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
_TEXTS: Final[Mapping[Any, str]] = {"output_text": "text", "refusal": "refusal"}
_CALLS: Final[Mapping[Any, str]] = {"function_call": "arguments", "custom_tool_call": "input"}
_TIERS: Final[Mapping[Any, str]] = {"priority": "priority", "default": "standard"}
_STATUSES: Final[Mapping[Any, int]] = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "server_error": 500,
}


@dataclass(frozen=True, slots=True)
class ContentBlock:
    """A content block: as it begins, the text that is streamed into it, its signature, and what it
    cites.

    ``part`` tells it from others of its item.
    """

    part: int | str
    begun: dict[str, Any]
    text: str = ""
    signature: str | None = None
    citations: Sequence[dict[str, Any]] = ()

    def finished(self) -> dict[str, Any]:
        """The block with all of its text."""
        kind = self.begun["type"]
        if kind in ("tool_use", "server_tool_use"):
            return {**self.begun, "input": _input(self.text)}
        if kind == "thinking":
            return {**self.begun, "thinking": self.text, "signature": self.signature}
        if kind != "text":
            return self.begun
        cited = {"citations": list(self.citations)} if self.citations else {}
        return {**self.begun, "text": self.text, **cited}


def blocks_of(
    item: Any, show: Show, told: Any = None, *, pages: dict[str, str]
) -> Iterator[ContentBlock]:
    """The blocks of an output item, which may be whatever an endpoint sent.

    ``told`` is the list of a reasoning item, ``content`` or ``summary``, that was told before.
    ``pages`` are the texts of pages by URL, which grow by those that the item has found.
    """
    if not isinstance(item, dict):
        return
    kind = item.get("type")
    if kind == "message":
        for index, part in enumerate(_list(item.get("content"))):
            if isinstance(part, dict):
                text = part.get(_TEXTS.get(part.get("type"), ""))
                if isinstance(text, str) and text:
                    cited = citations_of(part, pages)
                    yield ContentBlock(index, {"type": "text", "text": ""}, text, citations=cited)
    elif kind in _CALLS:
        if (begun := call_of(item)) is not None:
            arguments = item.get(_CALLS[kind])
            yield ContentBlock("call", begun, arguments if isinstance(arguments, str) else "")
    elif kind == "reasoning" and show != "nothing":
        yield from _thinking(item, show, told)
    elif (ran := use_and_result(item)) is not None:
        pages.update(_pages(item))
        yield ContentBlock("use", ran[0], ran[1])
        yield ContentBlock("result", ran[2])


def _pages(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for page in _list(item.get("results")):
        url, text = _dict(page).get("url"), _dict(page).get("text")
        if isinstance(url, str) and isinstance(text, str):
            yield url, text


def call_of(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """The beginning of a block of tool use; None for a call that nobody could answer."""
    name, call_id = item.get("name"), item.get("call_id")
    if not isinstance(name, str) or not isinstance(call_id, str):
        return None
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def _thinking(item: Mapping[str, Any], show: Show, told: Any) -> Iterator[ContentBlock]:
    """Reasoning without a text is shown as what nobody may read, if it can be sent back."""
    sealed = item.get("encrypted_content")
    signature = sign(sealed)
    begun = {"type": "thinking", "thinking": "", "signature": ""}
    if show == "text":
        for source in (told,) if told else ("content", "summary"):
            if text := _texts(item.get(source)):
                yield ContentBlock(source, begun, text, signature)
                return
        if told:  # what was streamed is not repeated here
            yield ContentBlock(told, begun, "", signature)
        elif isinstance(sealed, str) and sealed:
            yield ContentBlock("sealed", {"type": "redacted_thinking", "data": signature})
    elif isinstance(sealed, str) and sealed:
        yield ContentBlock("sealed", begun, "", signature)


def _texts(parts: Any) -> str:
    texts = [part.get("text") for part in _list(parts) if isinstance(part, dict)]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def _input(arguments: str) -> dict[str, Any]:
    """The input of a tool. What is no object (the model was cut short) is kept as a text."""
    if not arguments.strip():
        return {}
    try:
        value = orjson.loads(arguments)
        orjson.dumps([[[[value]]]])  # it has to fit into the message
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return {"input": arguments}
    return value if isinstance(value, dict) else {"input": arguments}


def outline(response: Mapping[str, Any]) -> dict[str, Any]:
    """The message of a response that has only begun."""
    ident = response.get("id")
    return {
        "id": "msg_" + (ident if isinstance(ident, str) else "").removeprefix("resp_"),
        "type": "message",
        "role": "assistant",
        "model": str(response.get("model") or ""),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_of({}),
    }


def message_of(response: Mapping[str, Any], show: Show) -> dict[str, Any]:
    """The message of a finished response; raises UpstreamRejected for one that failed."""
    if response.get("status") == "failed":
        # Not an endpoint's own fault: another one would have been asked.
        _, message = error_of(response)
        raise UpstreamRejected.quoting(message)
    pages: dict[str, str] = {}
    content = [
        block.finished()
        for item in _list(response.get("output"))
        for block in blocks_of(item, show, pages=pages)
    ]
    return {
        **outline(response),
        "content": content,
        **stop_of(response),
        "usage": usage_of(response),
    }


def stop_of(response: Mapping[str, Any]) -> dict[str, Any]:
    """Why it ended. Which stop sequence it was that ended it is known to the endpoint only."""
    items = [item for item in _list(response.get("output")) if isinstance(item, dict)]
    reason = "end_turn"
    if response.get("status") == "incomplete":
        details = response.get("incomplete_details")
        why = details.get("reason") if isinstance(details, dict) else None
        reason = _STOPS.get(why, "max_tokens")
    elif any(item.get("type") in _CALLS and call_of(item) for item in items):
        reason = "tool_use"
    elif any(_refuses(item) for item in items):
        reason = "refusal"
    stop: dict[str, Any] = {"stop_reason": reason, "stop_sequence": None}
    if reason == "refusal":
        stop["stop_details"] = {"type": "refusal", "category": None, "explanation": None}
    return stop


def _refuses(item: Mapping[str, Any]) -> bool:
    parts = _list(item.get("content")) if item.get("type") == "message" else []
    return any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts)


def usage_of(response: Mapping[str, Any]) -> dict[str, Any]:
    """The counts; those of the prompt are told apart by what the endpoint's cache did."""
    usage = _dict(response.get("usage"))
    inputs = _dict(usage.get("input_tokens_details"))
    read, written = _count(inputs, "cached_tokens"), _count(inputs, "cache_write_tokens")
    counts: dict[str, Any] = {
        "input_tokens": max(0, _count(usage, "input_tokens") - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": _count(usage, "output_tokens"),
    }
    if thought := _count(_dict(usage.get("output_tokens_details")), "reasoning_tokens"):
        counts["output_tokens_details"] = {"thinking_tokens": thought}
    items = _list(response.get("output"))
    searches = sum(_dict(item).get("type") == "web_search_call" for item in items)
    if searches:
        counts["server_tool_use"] = {"web_search_requests": searches, "web_fetch_requests": 0}
    if tier := _TIERS.get(response.get("service_tier")):
        counts["service_tier"] = tier
    return counts


def error_of(response: Mapping[str, Any]) -> tuple[int, str]:
    """The status that a failed response would have had at its beginning, and its message."""
    error = _dict(response.get("error"))
    message = error.get("message")
    said = message if isinstance(message, str) and message else "The response failed."
    return _STATUSES.get(error.get("code"), 400), said


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(counts: Mapping[str, Any], name: str) -> int:
    value = counts.get(name)
    return value if type(value) is int else 0
