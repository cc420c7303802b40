"""A model that plays scripts, behind the simulated backends: what agents of the real world are
tried with.

It remembers nothing: which script it plays, and how far it is, it sees in the conversation, as a
real one does. A script begins where a user's message has its name. A summary that it is asked for
says how far it is, so a conversation that is compacted goes on only where the summary came along.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from router.simulate.dialogue import (
    FunctionCall,
    Message,
    SimulatedAnswer,
    SimulatedRequest,
    TokenUsage,
    input_tokens,
)
from router.simulate.fields import BadRequest

__all__ = ["Call", "ScriptedModel"]

_PLACE: Final = re.compile(r"(?P<script>TASK-[a-z]+)|STEPS-DONE-(?P<done>\d+)")
_SUMMARY: Final = "So far"
_TRANSCRIPT: Final = re.compile(r"<conversation>.*</conversation>", re.DOTALL)
"""How opencode has a conversation summarised: as a text, in one message."""
_CALLED: Final = "[Assistant tool call]: "
_WANTS_SUMMARY: Final = re.compile(
    r"(create|write|provide)\b[^.<]{0,80}\bsummary|compaction", re.IGNORECASE
)


@dataclass(frozen=True)
class Call:
    """A step: the tool whose name ends with ``name``; ``arguments`` may depend on its results."""

    name: str
    arguments: Mapping[str, Any] | Callable[[Sequence[str]], Mapping[str, Any]]


@dataclass
class ScriptedModel:
    """``scripts`` by name; after the last step of ``TASK-x``, the answer is ``DONE-x``.

    ``strict`` refuses, as many chat templates do, a second system message or one that is not first.
    ``refuse`` may raise BadRequest for a conversation. ``results`` has the tools' results of each
    script, in the order of its calls, as last seen; ``offered`` the names of the tools at each of
    its turns; ``problems`` what should not have been.
    """

    scripts: Mapping[str, Sequence[Call]]
    strict: bool
    refuse: Callable[[SimulatedRequest], None] = lambda _: None
    offered: dict[str, list[frozenset[str]]] = field(default_factory=lambda: defaultdict(list))
    results: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    summaries: int = 0

    def answer(self, question: SimulatedRequest) -> SimulatedAnswer:
        """The next step. Raises BadRequest for a conversation that a template refuses."""
        if self.strict and any(message.role == "system" for message in question.messages[1:]):
            self.problems.append("a system message that is not the first")
            raise BadRequest("System message must be at the beginning.", param="messages")
        self.refuse(question)
        name, done, results = self._place(question.messages)
        if _asks_for_a_summary(question.messages):
            self.summaries += 1
            text = f"{_SUMMARY} {name}: STEPS-DONE-{done}."
            return _answer(question, _summary(question, text))
        if name not in self.scripts or not question.tools:
            return _answer(question, "A title")  # agents ask for one beside their work
        self.results[name] = results
        self.offered[name].append(frozenset(tool.name for tool in question.tools))
        steps = self.scripts[name]
        if done >= len(steps):
            # Not its whole name: what a sub-agent says may be told as a message of the user's.
            return _answer(question, name.replace("TASK", "DONE"))
        return self._step(question, steps[done], results)

    def _place(self, messages: Sequence[Message]) -> tuple[str, int, list[str]]:
        """The script, how many of its steps are done, and the results that are still there."""
        name, done, results = "", 0, list[str]()
        for message in messages:
            if message.role == "tool":
                results.append(message.text)
                continue
            for found in _PLACE.finditer(message.text if message.role != "system" else ""):
                if found["script"] is None:
                    done = int(found["done"])
                elif message.role == "user" or message.text.startswith(_SUMMARY):
                    name, done, results = found["script"], 0, []
            done += len(message.calls) + message.text.count(_CALLED)
        return name, done, results

    def _step(
        self, question: SimulatedRequest, step: Call, results: Sequence[str]
    ) -> SimulatedAnswer:
        names = [tool.name for tool in question.tools]
        offered = [name for name in names if name.endswith(step.name)]
        if not offered:
            self.problems.append(f"{step.name} is not on offer: {', '.join(names)}")
            return _answer(question, f"There is no {step.name}")
        arguments = step.arguments(results) if callable(step.arguments) else step.arguments
        return _answer(question, "", FunctionCall(min(offered, key=len), json.dumps(arguments)))


def _asks_for_a_summary(messages: Sequence[Message]) -> bool:
    last = messages[-1]
    if last.role != "user":
        return False
    if _TRANSCRIPT.search(last.text) is not None:
        return True
    return _WANTS_SUMMARY.search(last.text) is not None and _PLACE.search(last.text) is None


def _summary(question: SimulatedRequest, text: str) -> str:
    """In tags where it is asked for so: Claude Code asks again for one that is not."""
    if "<summary>" not in question.messages[-1].text:
        return text
    return f"<analysis>All of it.</analysis>\n<summary>{text}</summary>"


def _answer(question: SimulatedRequest, text: str, *calls: FunctionCall) -> SimulatedAnswer:
    usage = TokenUsage(input_tokens(question.messages, question.tools), 10, 0)
    return SimulatedAnswer("", text, calls, "tool_calls" if calls else "stop", usage)
