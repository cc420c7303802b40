"""A finished legacy completion, made of its stream, and told as a stream again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from router.translate.pieces import pieces
from router.wire.frame import Frame

__all__ = ["completion_chunks", "finished_completion"]

JSON = dict[str, Any]

_DONE: Final = b"[DONE]"
_LISTS: Final = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


def finished_completion(sent: bytes | Sequence[bytes]) -> JSON | None:
    """The completion in what a client was sent: a body, or the data of a stream's events.

    None for what is not complete (each choice has to end with ``stop``), or says nothing.
    """
    try:
        whole = orjson.loads(sent) if isinstance(sent, bytes) else _merged(sent)
        choices = whole["choices"]
        complete = all(choice["finish_reason"] == "stop" for choice in choices)
        says = "".join(choice["text"] for choice in choices)
        placed = sorted(choice["index"] for choice in choices) == list(range(len(choices)))
        named = type(whole["model"]) is str and type(whole["id"]) is str
    except (ValueError, TypeError, AttributeError, LookupError):
        return None  # not JSON, or not as a completion is
    return whole if complete and says and placed and named else None


def completion_chunks(whole: JSON, *, include_usage: bool) -> list[Frame]:
    """The stream of a completion, ``[DONE]`` included."""
    head = {name: value for name, value in whole.items() if name not in ("choices", "usage")}
    frames = []
    for choice in whole["choices"]:
        # Log probabilities are of tokens, which need not end where pieces do.
        cut = [choice["text"]] if choice.get("logprobs") else pieces(choice["text"]) or [""]
        for text in cut[:-1]:
            part = {"index": choice["index"], "text": text, "logprobs": None, "finish_reason": None}
            frames.append(Frame("", orjson.dumps({**head, "choices": [part]})))
        last = {**choice, "text": cut[-1]}
        frames.append(Frame("", orjson.dumps({**head, "choices": [last]})))
    if include_usage and (usage := whole.get("usage")) is not None:
        frames.append(Frame("", orjson.dumps({**head, "choices": [], "usage": usage})))
    return [*frames, Frame("", _DONE)]


def _merged(events: Sequence[bytes]) -> JSON:
    """What the events amount to. Raises ValueError, TypeError, AttributeError or LookupError."""
    whole: JSON = {}
    choices: dict[int, JSON] = {}
    for data in events:
        if data == _DONE:
            continue
        chunk = orjson.loads(data)
        if chunk.get("error") or chunk.get("object") == "error":
            raise ValueError
        usage = chunk.get("usage") or whole.get("usage")
        whole = {**chunk, **whole, **({"usage": usage} if usage else {})}
        for part in chunk["choices"]:
            choice = choices.get(part["index"])
            choices[part["index"]] = dict(part) if choice is None else _joined(choice, part)
    return {**whole, "choices": [choices[index] for index in sorted(choices)]}


def _joined(choice: JSON, part: JSON) -> JSON:
    said = {name: value for name, value in part.items() if value is not None}
    logprobs = choice.get("logprobs")
    if logprobs and (more := part.get("logprobs")):
        lists = {n: [*(logprobs.get(n) or ()), *(more.get(n) or ())] for n in _LISTS if n in more}
        said["logprobs"] = {**logprobs, **lists}
    return {**choice, **said, "text": choice["text"] + (part.get("text") or "")}
