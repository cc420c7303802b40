"""What the clients of Chat Completions read: the chunks of a completion, and its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from router.response.frame import Frame

__all__ = [
    "CALLS",
    "ChatStream",
    "chat_annotations",
    "chat_call",
    "chat_usage",
    "finish_reason",
]

Item = dict[str, Any]

CALLS: Final[Mapping[Any, tuple[str, str]]] = {
    "function_call": ("function", "arguments"),
    "custom_tool_call": ("custom", "input"),
}
"""How a call is named in a chat message, and where its text is."""

_DONE: Final = b"[DONE]"
_PLACES: Final = ("start_index", "end_index")


class ChatStream:
    """Writes the chunks of one completion, with one choice.

    ``said`` is whether there is more than the role.
    """

    __slots__ = ("_frames", "_head", "_tail", "said")

    def __init__(self, id: str, created: int, model: str, include_usage: bool) -> None:
        head = {"id": id, "object": "chat.completion.chunk", "created": created, "model": model}
        self._head = orjson.dumps(head)[:-1]
        self._tail = b',"usage":null}' if include_usage else b"}"
        self._frames: list[Frame] = []
        self.said = False
        self._chunk({"role": "assistant", "content": ""})

    def say(self, name: str, text: str, logprobs: list[Item] | None = None) -> None:
        """A piece of text."""
        self.said = True
        self._chunk({name: text}, logprobs=logprobs)

    def call(self, index: int, item: Item) -> None:
        """A tool call begins: who is called."""
        self.said = True
        self._chunk({"tool_calls": [{"index": index, **chat_call(item, "")}]})

    def arguments(self, index: int, kind: Any, piece: str) -> None:
        """With what it is called: a piece of it."""
        name, field = CALLS[kind]
        self._chunk({"tool_calls": [{"index": index, name: {field: piece}}]})

    def annotate(self, annotations: list[Item]) -> None:
        """What the text so far cites, as ``chat_annotations``."""
        self._chunk({"annotations": annotations})

    def end(self, reason: str, usage: Mapping[str, Any] | None) -> None:
        """Why it ends, its Responses ``usage`` where it is to be told, and the end itself."""
        self.said = True
        self._chunk({}, finish=reason)
        if usage is not None:
            data = b'%b,"choices":[],"usage":%b}' % (self._head, orjson.dumps(chat_usage(usage)))
            self._frames.append(Frame("", data))
        self._frames.append(Frame("", _DONE))

    def take(self) -> list[Frame]:
        """The chunks written since the last call."""
        frames, self._frames = self._frames, []
        return frames

    def _chunk(
        self, delta: Item, *, logprobs: list[Item] | None = None, finish: str | None = None
    ) -> None:
        entries = {"content": logprobs, "refusal": None}
        data = b'%b,"choices":[{"index":0,"delta":%b,%b"finish_reason":%b}]%b' % (
            self._head,
            orjson.dumps(delta),
            b'"logprobs":%b,' % orjson.dumps(entries) if logprobs else b"",
            orjson.dumps(finish),
            self._tail,
        )
        self._frames.append(Frame("", data))


def chat_call(item: Item, text: str) -> Item:
    """A call, with so much of its text."""
    name, field = CALLS[item["type"]]
    return {"id": item["call_id"], "type": name, name: {"name": item["name"], field: text}}


def chat_annotations(parts: Iterable[Item], before: int = 0) -> list[Item]:
    """The web pages that these parts of a message cite, behind ``before`` characters of its text:
    other annotations have no form there.
    """
    told = []
    for part in parts:
        for one in part.get("annotations") or ():
            if isinstance(one, dict) and one.get("type") == "url_citation":
                cited = {name: value for name, value in one.items() if name != "type"}
                for name in _PLACES:
                    if isinstance(cited.get(name), int):
                        cited[name] += before
                told.append({"type": "url_citation", "url_citation": cited})
        before += len(part.get("text", ""))
    return told


def finish_reason(calls: bool, details: Any) -> str:
    """Why an answer ended. ``details`` are its ``incomplete_details``."""
    if details:
        filtered = isinstance(details, dict) and details.get("reason") == "content_filter"
        return "content_filter" if filtered else "length"
    return "tool_calls" if calls else "stop"


def chat_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """A Responses ``usage`` as that of a chat completion; an estimate stays marked."""
    counts: dict[str, Any] = {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": {"cached_tokens": usage["input_tokens_details"]["cached_tokens"]},
        "completion_tokens_details": {
            "reasoning_tokens": usage["output_tokens_details"]["reasoning_tokens"]
        },
    }
    return {**counts, "estimated": True} if usage.get("estimated") else counts
