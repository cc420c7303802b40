"""What an answer says, whatever the API that it came in, whole or as a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from tests.matrix.asking import OVER_WEBSOCKET
from tests.support.anthropic import bodies_of, check_message, check_stream
from tests.support.router import Reply
from tests.support.sse import check_responses_stream, text_of

__all__ = ["Said", "read", "reported", "timeless", "trouble"]

Call = tuple[str, dict[str, Any]]

_EACH_TIME: Final = frozenset({"id", "call_id", "created", "timings"})
_MOMENTS: Final = ("_at", "_duration")


@dataclass
class Said:
    """``usage`` are the tokens of input and output, ``thought`` how many of them were reasoning,
    where the API tells. ``logprobs`` are tokens, each with how many alternatives it has.
    ``pieces`` is in how many the text came. ``cut``: it ended at the limit of its length.
    """

    text: str = ""
    calls: list[Call] = field(default_factory=list)
    reasoning: str = ""
    usage: tuple[int, int] | None = None
    thought: int | None = None
    logprobs: list[tuple[str, int]] = field(default_factory=list)
    pieces: int = 0
    cut: bool = False


def read(surface: str, reply: Reply, *, stream: bool) -> Said:
    """Read an answer; raises AssertionError where it is not of its API's form."""
    whole, streamed = _READERS[surface]
    if not stream:
        assert reply.headers["Content-Type"].startswith("application/json"), reply.headers
    return streamed(reply) if stream else whole(reply.json)


def timeless(answer: Any) -> Any:
    """An answer without what is another each time: ids, moments and durations."""
    if isinstance(answer, list):
        return [timeless(value) for value in answer]
    if not isinstance(answer, dict):
        return answer
    return {
        name: timeless(value)
        for name, value in answer.items()
        if name not in _EACH_TIME and not name.endswith(_MOMENTS)
    }


def reported(path: str, answer: dict[str, Any]) -> tuple[int, int]:
    """Tokens of input and output as a backend tells them."""
    if path == "/api/chat":
        return answer["prompt_eval_count"], answer["eval_count"]
    usage = answer["usage"]
    if path in ("/v1/responses", "/v1/messages"):
        return usage["input_tokens"], usage["output_tokens"]
    return usage["prompt_tokens"], usage["completion_tokens"]


def trouble(reply: Reply) -> str:
    """An error: status, code where the API has one, and message."""
    error = reply.json["error"]
    if isinstance(error, str):
        return f"{reply.status}: {error}"
    return f"{reply.status} {error.get('code') or error['type']}: {error['message']}"


def _response(response: dict[str, Any]) -> Said:
    assert response["object"] == "response", response
    said = Said(pieces=1, cut=response["status"] == "incomplete")
    if said.cut:
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}, response
    else:
        assert response["status"] == "completed", response
    for item in response["output"]:
        if item["type"] == "function_call":
            said.calls.append((item["name"], orjson.loads(item["arguments"])))
        elif item["type"] == "reasoning":
            parts = [*item["summary"], *(item.get("content") or ())]
            said.reasoning += "".join(part["text"] for part in parts)
        else:
            for part in item["content"]:
                said.text += part["text"]
                said.logprobs += _entries(part.get("logprobs"))
    usage = response["usage"]
    said.usage = (usage["input_tokens"], usage["output_tokens"])
    said.thought = usage["output_tokens_details"]["reasoning_tokens"]
    return said


def _response_stream(reply: Reply) -> Said:
    events = reply.events
    said = _response(check_responses_stream(events))
    deltas = [event.json for event in events if event.type == "response.output_text.delta"]
    assert text_of(events) == said.text
    assert [entry for delta in deltas for entry in _entries(delta.get("logprobs"))] == said.logprobs
    said.pieces = len(deltas)
    return said


def _entries(entries: list[dict[str, Any]] | None) -> list[tuple[str, int]]:
    return [(entry["token"], len(entry["top_logprobs"])) for entry in entries or ()]


def _chat(answer: dict[str, Any]) -> Said:
    assert answer["object"] == "chat.completion", answer
    [choice] = answer["choices"]
    message = choice["message"]
    said = Said(message.get("content") or "", pieces=1)
    said.reasoning = _thoughts(message)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    said.calls = [(call["name"], orjson.loads(call["arguments"])) for call in calls]
    said.cut = choice["finish_reason"] == "length"
    assert said.cut or choice["finish_reason"] == ("tool_calls" if calls else "stop")
    said.logprobs = _entries((choice.get("logprobs") or {}).get("content"))
    _count_chat(said, answer["usage"])
    return said


def _thoughts(message: dict[str, Any]) -> str:
    return message.get("reasoning_content") or message.get("reasoning") or ""


def _count_chat(said: Said, usage: dict[str, Any]) -> None:
    said.usage = (usage["prompt_tokens"], usage["completion_tokens"])
    said.thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")


def _chat_stream(reply: Reply) -> Said:
    said, calls = Said(), dict[int, list[str]]()
    for chunk in _chunks(reply, "chat.completion.chunk"):
        if chunk.get("usage"):
            _count_chat(said, chunk["usage"])
        for choice in chunk["choices"]:
            said.cut |= choice.get("finish_reason") == "length"
            delta = choice["delta"]
            said.pieces += bool(delta.get("content"))
            said.text += delta.get("content") or ""
            said.reasoning += _thoughts(delta)
            said.logprobs += _entries((choice.get("logprobs") or {}).get("content"))
            for call in delta.get("tool_calls") or ():
                made = calls.setdefault(call["index"], ["", ""])
                made[0] += call["function"].get("name") or ""
                made[1] += call["function"].get("arguments") or ""
    said.calls = [(name, orjson.loads(arguments)) for name, arguments in calls.values()]
    return said


def _chunks(reply: Reply, kind: str) -> list[dict[str, Any]]:
    *events, last = reply.events
    assert last.raw == b"[DONE]", last
    assert {event.json["object"] for event in events} == {kind}
    return [event.json for event in events]


def _completion(answer: dict[str, Any]) -> Said:
    assert answer["object"] == "text_completion", answer
    said = Said(pieces=1)
    _add_completion(said, answer)
    return said


def _completion_stream(reply: Reply) -> Said:
    said = Said()
    for chunk in _chunks(reply, "text_completion"):
        _add_completion(said, chunk)
        said.pieces += any(choice["text"] for choice in chunk["choices"])
    return said


def _add_completion(said: Said, answer: dict[str, Any]) -> None:
    for choice in answer["choices"]:
        said.cut |= choice["finish_reason"] == "length"
        said.text += choice["text"]
        sure = choice["logprobs"] or {"tokens": [], "top_logprobs": []}
        tops = map(len, sure["top_logprobs"])
        said.logprobs += zip(sure["tokens"], tops, strict=True)
    if answer.get("usage"):
        _count_chat(said, answer["usage"])


def _message(message: dict[str, Any]) -> Said:
    check_message(message)
    said = Said(pieces=1, cut=message["stop_reason"] == "max_tokens")
    for block in message["content"]:
        if block["type"] == "tool_use":
            said.calls.append((block["name"], block["input"]))
        elif block["type"] == "thinking":
            said.reasoning += block["thinking"]
        else:
            said.text += block["text"]
    said.usage = (message["usage"]["input_tokens"], message["usage"]["output_tokens"])
    return said


def _message_stream(reply: Reply) -> Said:
    events = bodies_of(reply.events)
    message = check_stream(events)
    assert message is not None, events
    said = _message(message)
    said.pieces = sum(event.get("delta", {}).get("type") == "text_delta" for event in events)
    return said


def _lines(answer: dict[str, Any]) -> Said:
    return _ollama([answer])


def _lines_stream(reply: Reply) -> Said:
    assert reply.headers["Content-Type"] == "application/x-ndjson"
    return _ollama([orjson.loads(line) for line in reply.body.splitlines()])


def _ollama(lines: list[dict[str, Any]]) -> Said:
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    said = Said(cut=lines[-1]["done_reason"] == "length")
    for line in lines:
        message = line.get("message") or line
        text = message["content"] if "message" in line else line["response"]
        said.pieces += bool(text)
        said.text += text
        said.reasoning += message.get("thinking") or ""
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        said.calls += [(function["name"], function["arguments"]) for function in functions]
        said.logprobs += _entries(line.get("logprobs"))
    said.usage = (lines[-1]["prompt_eval_count"], lines[-1]["eval_count"])
    return said


_READERS: Final[dict[str, tuple[Callable[[dict[str, Any]], Said], Callable[[Reply], Said]]]] = {
    "Responses": (_response, _response_stream),
    OVER_WEBSOCKET: (_response, _response_stream),
    "Chat Completions": (_chat, _chat_stream),
    "Completions": (_completion, _completion_stream),
    "Anthropic Messages": (_message, _message_stream),
    "Ollama chat": (_lines, _lines_stream),
    "Ollama generate": (_lines, _lines_stream),
}
