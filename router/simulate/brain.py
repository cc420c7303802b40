"""The mind of a simulated model: the same question always gets the same answer.

It greets, counts ("count to 5"), repeats ("say exactly: yes"), remembers a name it was told,
calls the functions it is offered, answers from their results, fills in JSON Schemas, reasons
when asked to, and otherwise tells what reached it: the question, the instructions, the turn,
the images. That is what one wants to see when trying out what stands between it and a client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.simulate.calls import choose_calls, hints_of, results_since_question
from router.simulate.dialogue import (
    Finish,
    FunctionCall,
    Message,
    SimulatedAnswer,
    SimulatedRequest,
    TokenUsage,
    count_tokens,
    input_tokens,
    pieces,
)
from router.simulate.sample import sample

__all__ = ["answer"]

_MAX_COUNT: Final = 1_000
_QUOTE_LENGTH: Final = 200
_EXACTLY: Final = re.compile(
    r"\b(?:say|repeat|reply|respond|answer)(?: with)? exactly\b:?\s*(.+)", re.I | re.S
)
_COUNT: Final = re.compile(r"\bcount (?:from (\d{1,6}) )?(?:up )?to (\d{1,6})\b", re.I)
_GREETING: Final = re.compile(
    r"\s*(?:hi|hello|hey|good (?:morning|day|evening))\b[^?]{0,20}$", re.I
)
_NAME_TOLD: Final = re.compile(r"\bmy name is ([\w'’-]+)", re.I)
_NAME_ASKED: Final = re.compile(r"\bwhat(?:'s| is) my name\b|\bwho am i\b", re.I)
_STEPS: Final = (
    "Let me see what is asked: {question}.",
    "I am a simulated model, so I need no knowledge, only a plain and repeatable answer.",
    "I have looked at the question, the instructions and the tools; nothing speaks against it.",
)
_EFFORTS: Final[Mapping[str, int]] = {"none": 0, "minimal": 0, "low": 1, "medium": 2}


def answer(question: SimulatedRequest) -> SimulatedAnswer:
    """Decide the whole answer.

    Raises SchemaError where a JSON Schema of the request (a function's parameters or the
    format of the answer) has no instance that could be found.
    """
    options = question.options
    asked = _last_text(question.messages)
    reasoning = _reasoning(options.effort, asked)
    calls = choose_calls(question, asked)
    text = "" if calls else _cut_at_stop(_text(question, asked), options.stop)
    return _within_budget(question, reasoning, text, calls)


def _last_text(messages: tuple[Message, ...]) -> str:
    return next((m.text for m in reversed(messages) if m.role == "user"), "")


def _reasoning(effort: str | None, asked: str) -> str:
    steps = 0 if effort is None else _EFFORTS.get(effort, len(_STEPS))
    return " ".join(_STEPS[:steps]).format(question=_quote(asked))


def _quote(text: str) -> str:
    short = " ".join(text.split())
    if len(short) > _QUOTE_LENGTH:
        short = short[: _QUOTE_LENGTH - 1] + "…"
    return f"“{short}”"


def _text(question: SimulatedRequest, asked: str) -> str:
    options = question.options
    results = results_since_question(question.messages)
    if options.schema is not None:
        hints = hints_of(" ".join([asked, *(result.text for result in results)]).strip())
        return orjson.dumps(sample(options.schema, hints)).decode()
    said = _from_results(results) if results else _say(question, asked)
    if options.json_mode:
        return orjson.dumps({"answer": said}).decode()
    return said


def _say(question: SimulatedRequest, asked: str) -> str:
    if exact := _EXACTLY.search(asked):
        wanted = exact[1].strip()
        quoted = len(wanted) > 2 and wanted[0] == wanted[-1] and wanted[0] in "\"'`"
        return wanted[1:-1] if quoted else wanted
    if count := _COUNT.search(asked):
        return _count(int(count[1] or 1), int(count[2]))
    if _NAME_ASKED.search(asked):
        return _recall(question.messages)
    seen = _seen(question.messages)
    if _GREETING.match(asked) and not seen:
        return f"Hello! I am {question.model}, a simulated model. How can I help?"
    return seen + _echo(question, asked)


def _count(first: int, last: int) -> str:
    step = 1 if last >= first else -1
    numbers = range(first, last + step, step)[:_MAX_COUNT]
    return ", ".join(map(str, numbers))


def _recall(messages: tuple[Message, ...]) -> str:
    told = [
        name
        for message in messages
        if message.role == "user"
        for name in _NAME_TOLD.findall(message.text)
    ]
    return f"Your name is {told[-1]}." if told else "You have not told me your name."


def _seen(messages: tuple[Message, ...]) -> str:
    last = next((message for message in reversed(messages) if message.role == "user"), None)
    if last is None:
        return ""
    parts = [
        f"{count} {kind}{'' if count == 1 else 's'}"
        for count, kind in ((last.images, "image"), (last.files, "file"))
        if count
    ]
    return f"I see {' and '.join(parts)}. " if parts else ""


def _echo(question: SimulatedRequest, asked: str) -> str:
    if not asked.strip():
        return f"I am {question.model}, a simulated model, and nothing was asked."
    verb = "asked" if asked.rstrip().endswith("?") else "said"
    said = [f"You {verb}: {_quote(asked)}", f"I am {question.model}, a simulated model."]
    instructions = [m.text for m in question.messages if m.role == "system" and m.text.strip()]
    if instructions:
        said.append(f"My instructions are {_quote(' '.join(instructions))}.")
    turn = sum(message.role == "user" for message in question.messages)
    if turn > 1:
        said.append(f"This is turn {turn} of our conversation.")
    return " ".join(said)


def _from_results(results: list[Message]) -> str:
    return " ".join(
        f"According to {result.name or 'the tool'}: {_told(result.text)}" for result in results
    )


def _told(result: str) -> str:
    """A tool's result in words, where it is a flat JSON object; else as it is."""
    try:
        value: Any = orjson.loads(result)
    except orjson.JSONDecodeError:
        return result.strip() or "nothing."
    if not isinstance(value, dict) or not value:
        return result.strip() or "nothing."
    facts = [f"{key.replace('_', ' ')} is {_in_words(inner)}" for key, inner in value.items()]
    return ", ".join(facts) + "."


def _in_words(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _cut_at_stop(text: str, stop: tuple[str, ...]) -> str:
    ends = [text.find(mark) for mark in stop if mark and mark in text]
    return text[: min(ends)] if ends else text


def _within_budget(
    question: SimulatedRequest, reasoning: str, text: str, calls: tuple[FunctionCall, ...]
) -> SimulatedAnswer:
    """Keep what ``max_tokens`` allows; a call is kept whole or not at all."""
    limit = question.options.max_tokens
    left = limit if limit is not None else 1 << 62
    finish: Finish = "tool_calls" if calls else "stop"
    kept_reasoning, kept_text = pieces(reasoning)[:left], pieces(text)
    left -= len(kept_reasoning)
    kept_text = kept_text[:left]
    left -= len(kept_text)
    kept_calls: list[FunctionCall] = []
    for call in calls:
        left -= _cost(call)
        if left < 0:
            break
        kept_calls.append(call)
    whole = "".join(kept_reasoning) == reasoning and "".join(kept_text) == text
    if not whole or len(kept_calls) < len(calls):
        finish = "length"
    spent = len(kept_reasoning) + len(kept_text) + sum(_cost(call) for call in kept_calls)
    usage = TokenUsage(input_tokens(question.messages, question.tools), spent, len(kept_reasoning))
    return SimulatedAnswer(
        "".join(kept_reasoning), "".join(kept_text), tuple(kept_calls), finish, usage
    )


def _cost(call: FunctionCall) -> int:
    return count_tokens(call.name) + count_tokens(call.arguments)
