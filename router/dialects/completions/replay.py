"""A finished legacy completion, made of its stream, and told as a stream again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from router.dialects.chat.join_chunks import JoinedChunks
from router.response.frame import Frame
from router.response.replay import pieces

__all__ = ["completion_chunks", "finished_completion"]

JSON = dict[str, Any]

_DONE: Final = b"[DONE]"


def finished_completion(sent: bytes | Sequence[bytes]) -> JSON | None:
    """The completion in what a client was sent: a body, or the data of a stream's events.

    None for what is not complete (each choice has to end with ``stop``), or says nothing.
    """
    try:
        whole = orjson.loads(sent) if isinstance(sent, bytes) else JoinedChunks.of(sent).whole()
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
