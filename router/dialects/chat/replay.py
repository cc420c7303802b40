"""A finished answer in the form of Chat Completions, and back.

A message, its reasoning and its calls are one message there: several messages are joined, and what
else an answer may hold is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

import orjson

from router.dialects.chat.chunks import (
    CALLS,
    ChatStream,
    chat_annotations,
    chat_call,
    chat_usage,
    finish_reason,
)
from router.dialects.chat.decode_stream import ChatDecoder
from router.dialects.chat.join_chunks import JoinedChunks
from router.dialects.chat.messages import reasoning_text
from router.errors import UpstreamFailure
from router.response.builder import ResponseBuilder
from router.response.frame import Frame
from router.response.machine import MachineOptions
from router.response.replay import pieces, with_logprobs

__all__ = ["answer_of_chat", "chunks", "completion"]

Item = dict[str, Any]

_COMPLETE: Final = ("stop", "tool_calls")
_NOT_KEPT: Final = ("annotations", "audio", "function_call")
"""Of a message: what would be lost on the way to an answer and back."""


def completion(answer: Mapping[str, Any], *, id: str, created: int) -> dict[str, Any]:
    """A ``chat.completion`` of the answer (see ``router.response.replay``), with one choice."""
    output = answer["output"]
    parts = list(_parts(output))
    message: dict[str, Any] = {
        "role": "assistant",
        "content": _joined(parts, "output_text", "text"),
        "refusal": _joined(parts, "refusal", "refusal"),
    }
    if annotations := chat_annotations(parts):
        message["annotations"] = annotations
    if reasoning := "\n\n".join(filter(None, map(_reasoning, output))):
        message["reasoning_content"] = reasoning
    if calls := [chat_call(item, item[CALLS[item["type"]][1]]) for item in _calls(output)]:
        message["tool_calls"] = calls
    entries = [entry for part in parts for entry in part.get("logprobs") or ()]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": {"content": entries, "refusal": None} if entries else None,
        "finish_reason": finish_reason(bool(calls), answer.get("incomplete_details")),
    }
    whole = {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": answer["model"],
        "choices": [choice],
    }
    usage = answer["usage"]
    return whole if usage is None else {**whole, "usage": chat_usage(usage)}


def chunks(answer: Mapping[str, Any], *, id: str, created: int, include_usage: bool) -> list[Frame]:
    """The stream of that completion, ``[DONE]`` included."""
    stream = ChatStream(id, created, answer["model"], include_usage)
    calls = told = 0
    said = ""
    for item in answer["output"]:
        if (kind := item.get("type")) in CALLS:
            stream.call(calls, item)
            for piece in pieces(item[CALLS[kind][1]]):
                stream.arguments(calls, kind, piece)
            calls += 1
        elif reasoning := _reasoning(item):
            for piece in pieces(said + reasoning):
                stream.say("reasoning_content", piece)
            said = "\n\n"
        for part in _parts([item]):
            _tell(stream, part)
            if annotations := chat_annotations([part], told):
                stream.annotate(annotations)
            told += len(part.get("text", ""))
    reason = finish_reason(bool(calls), answer.get("incomplete_details"))
    stream.end(reason, answer["usage"] if include_usage else None)
    return stream.take()


def answer_of_chat(
    sent: bytes | Sequence[bytes], *, usage: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """The answer ``{"model", "status", "output", "usage"}`` in what a Chat client was sent: a
    completion, or the data of a stream's events. Its items are in the order of a completion:
    reasoning, text, refusal, calls.

    None for what is not one complete answer, and for one that could not be given again as it was.
    ``usage`` is the Responses usage where the answer itself has none.
    """
    try:
        whole = orjson.loads(sent) if isinstance(sent, bytes) else _joined_chunks(sent)
        (choice,) = whole["choices"]
        inputs = _custom_inputs(choice)
        model = whole["model"]
        body = sent if isinstance(sent, bytes) else orjson.dumps(whole)
    except (ValueError, TypeError, AttributeError, LookupError):
        return None  # not JSON, or not as a completion is
    if choice.get("finish_reason") not in _COMPLETE or not isinstance(model, str) or not model:
        return None
    final = _read(body)
    if final is None:
        return None
    output = [_as_custom(item, inputs) for item in final["output"]]
    if not all(map(_is_sound, output)):
        return None
    counted = final["usage"]
    if usage is None or not counted.get("estimated"):
        usage = counted
    return {"model": model, "status": "completed", "output": output, "usage": usage}


def _tell(stream: ChatStream, part: Item) -> None:
    """A part of a message."""
    if part["type"] == "refusal":
        for piece in pieces(part["refusal"]):
            stream.say("refusal", piece)
    elif logprobs := part.get("logprobs"):
        for piece, entries in with_logprobs(part["text"], logprobs):
            stream.say("content", piece, entries)
    else:
        for piece in pieces(part["text"]):
            stream.say("content", piece)


def _parts(output: Iterable[Item]) -> Iterator[Item]:
    for item in output:
        if item.get("type") == "message":
            for part in item.get("content") or ():
                if part.get("type") in ("output_text", "refusal"):
                    yield part


def _joined(parts: Iterable[Item], kind: str, field: str) -> str | None:
    texts = [part[field] for part in parts if part["type"] == kind]
    return "".join(texts) if texts else None


def _reasoning(item: Item) -> str:
    return reasoning_text(item) if item.get("type") == "reasoning" else ""


def _calls(output: Iterable[Item]) -> list[Item]:
    return [item for item in output if item.get("type") in CALLS]


def _is_sound(item: Item) -> bool:
    """Whether it is no call, or one with arguments that can be read: others may be two in one."""
    if item["type"] == "function_call":
        try:
            orjson.loads(item["arguments"])
        except orjson.JSONDecodeError:
            return False
    return True


def _joined_chunks(events: Iterable[bytes]) -> dict[str, Any]:
    """The completion that the events of a stream amount to; raises like ``JoinedChunks``, and
    ValueError where clients may tell its calls apart in another way.
    """
    joined = JoinedChunks.of(events)
    if not joined.by_index:
        raise ValueError
    return joined.whole()


def _read(whole: bytes) -> dict[str, Any] | None:
    """What a reader makes of a completion; None where it does not take it for an answer."""
    numbers = count(1)
    builder = ResponseBuilder(
        echo={},
        own_fields=frozenset(),
        new_id=lambda prefix: f"{prefix}{next(numbers)}",
        now=lambda: 0,
        muted=True,
    )
    decoder = ChatDecoder(builder, MachineOptions(logprobs=True))
    try:
        decoder.whole(whole)
    except UpstreamFailure:
        return None
    return decoder.final


def _custom_inputs(choice: Item) -> dict[str, str]:
    """The inputs of custom tools' calls, by ``call_id``: a reader expects them to be JSON.

    Raises ValueError for another choice than the first, and for what an answer would not hold.
    """
    message = choice["message"]
    if choice.get("index") not in (0, None) or any(map(message.get, _NOT_KEPT)):
        raise ValueError
    inputs: dict[str, str] = {}
    ids: set[str] = set()
    for call in message.get("tool_calls") or ():
        if not isinstance(call["id"], str) or not call["id"] or call["id"] in ids:
            raise ValueError
        ids.add(call["id"])
        if custom := call.get("custom"):
            inputs[call["id"]] = custom["input"] + ""
    return inputs


def _as_custom(item: Item, inputs: Mapping[str, str]) -> Item:
    if item["type"] != "function_call" or item["call_id"] not in inputs:
        return item
    return {
        "id": item["id"].replace("fc_", "ctc_"),
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": item["call_id"],
        "name": item["name"],
        "input": inputs[item["call_id"]],
    }
