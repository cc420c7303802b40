"""One turn of the loop: what the model is asked, and what takes its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from router.core.exchange import Exchange, Sink
from router.dialects.hosted_items import (
    approved_requests,
    hosted_call_id,
    hosted_function_name,
)
from router.dialects.responses.namespaces import without_deferred
from router.errors import InvalidRequest
from router.response.frame import Frame
from router.tools.answer import LoopAnswer
from router.tools.hosted import TOOL_SEARCH, HostedCall, HostedTool, ToolResult

__all__ = [
    "TurnAnswer",
    "TurnSink",
    "approved_calls",
    "as_call",
    "as_output",
    "only_turn_body",
    "turn_body",
    "without_approvals",
]

Item = dict[str, Any]

_NOT_SENT: Final = frozenset({"enable_response_messages", "max_tool_calls"})
"""What is for the one response to heed."""

_OF_A_REQUEST: Final = ("server_label", "name", "arguments")
"""What an ``mcp_approval_request`` says of its call."""


class TurnSink:
    """Implements ``Sink`` for a turn. ``headers`` are those of its answer."""

    def __init__(self, answer: LoopAnswer, turn: Exchange, client: Sink) -> None:
        self._answer = answer
        self._turn = turn
        self._client = client
        self.opened = False
        self.headers: Mapping[str, str] = {}

    @property
    def paused(self) -> bool:
        """See ``Sink.paused``."""
        return self._client.paused

    async def resumed(self) -> None:
        """See ``Sink.resumed``."""
        await self._client.resumed()

    def open(self, headers: Mapping[str, str]) -> None:
        """See ``Sink.open``."""
        self.opened = True
        self.headers = headers
        self._answer.open(headers, self._turn.result.served_model)

    def feed(self, batch: Sequence[Frame]) -> None:
        """See ``Sink.feed``."""
        self._answer.relay(batch)

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """See ``Sink.finish``: the record has the body."""
        self.headers = headers

    def end(self) -> None:
        """See ``Sink.end``: it is the end of the turn only."""


@dataclass(slots=True)
class TurnAnswer:
    """Implements ``ExchangeRecord`` for a turn: takes its final Response object, empty until there
    is one, and the encrypted reasoning that is not shown.
    """

    response: dict[str, Any] = field(default_factory=dict)
    encrypted: Mapping[str, str] = field(default_factory=dict)

    async def finish(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str], last: Frame | None
    ) -> bool:
        """See ``ExchangeRecord.finish``: it is stored with the other turns, at their end."""
        self.response, self.encrypted = response, encrypted_reasoning
        return True

    def abandon(self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]) -> None:
        """See ``ExchangeRecord.abandon``."""
        self.response, self.encrypted = response, encrypted_reasoning

    def items(self) -> list[Item]:
        """The answer's items as the next turn sends them: with their encrypted reasoning."""
        return [
            {**item, "encrypted_content": blob}
            if (blob := self.encrypted.get(item.get("id", ""))) is not None
            else item
            for item in self.response["output"]
        ]


def approved_calls(items: Sequence[Item]) -> list[HostedCall]:
    """The calls that the client has approved of and that are to be run now. A request that is not
    well formed is none that was made here.
    """
    return [
        HostedCall(
            hosted_call_id(request["id"]),
            hosted_function_name(request["server_label"], request["name"]),
            request["arguments"] or "{}",
            request["id"],
        )
        for request in approved_requests(items)
        if all(isinstance(request.get(name), str) for name in _OF_A_REQUEST)
    ]


def without_approvals(items: Sequence[Item], calls: Sequence[HostedCall]) -> list[Item]:
    """The items but for those by which these calls were asked for, and approved of."""
    idents = {call.approval for call in calls}
    return [
        item
        for item in items
        if not (item.get("type") == "mcp_approval_request" and item.get("id") in idents)
        and not (
            item.get("type") == "mcp_approval_response"
            and item.get("approval_request_id") in idents
        )
    ]


def as_call(call: HostedCall) -> Item:
    """The call as the model made it."""
    return {
        "type": "function_call",
        "call_id": call.call_id,
        "name": call.function,
        "arguments": call.arguments,
    }


def as_output(call: HostedCall, result: ToolResult) -> Item:
    """What the model is told came of a call."""
    if result.tools is not None:
        return {
            "type": "tool_search_output",
            "call_id": call.call_id,
            "execution": "client",
            "status": "completed",
            "tools": list(result.tools),
        }
    return {"type": "function_call_output", "call_id": call.call_id, "output": result.text}


def turn_body(
    body: Mapping[str, Any],
    items: Sequence[Item],
    tools: Sequence[HostedTool],
    *,
    first: bool,
    offered: bool,
) -> dict[str, Any]:
    """The request that the model is asked with: ``items`` for its input, and functions for the
    tools that are run here, if they are ``offered``. What the client wants called is called in the
    ``first`` turn only: later ones are to come to an end.
    """
    asked = {k: v for k, v in body.items() if k not in _NOT_SENT}
    asked["input"] = list(items)
    here = {tool.index for tool in tools}
    others = [tool for index, tool in enumerate(body["tools"]) if index not in here]
    if not offered and any(tool.kind == TOOL_SEARCH for tool in tools):
        others = without_deferred(others)  # nobody searches for them any more
    functions = [function for tool in tools for function in tool.functions()] if offered else []
    # What is found comes last: as with the rest of the prompt, what was there before stays.
    loaded = {one["name"]: one for tool in tools for one in tool.loaded()}
    asked["tools"] = [*functions, *others, *loaded.values()]
    choice = _choice(body.get("tool_choice"), tools, first=first, offered=offered)
    if choice is None or not asked["tools"]:
        asked.pop("tool_choice", None)
    else:
        asked["tool_choice"] = choice
    if not asked["tools"]:
        del asked["tools"]
        asked.pop("parallel_tool_calls", None)
    return asked


def only_turn_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a response without tools that are run here, which has one turn."""
    return {name: value for name, value in body.items() if name != "enable_response_messages"}


def _choice(given: Any, tools: Sequence[HostedTool], *, first: bool, offered: bool) -> Any:
    """``tool_choice`` with functions in the place of hosted tools; None for the model's own. What
    may not be called may not be called in any turn.
    """
    must = first and offered
    if not isinstance(given, dict):
        return given if must or given == "none" else None
    if given.get("type") == "allowed_tools":
        allowed = [name for one in given["tools"] for name in _named(one, tools, offered=offered)]
        mode = given["mode"] if must else "auto"
        if not allowed and mode == "auto":
            return "none"
        return {**given, "mode": mode, "tools": _not_empty(allowed)}
    if not must:
        return None
    names = _not_empty(_named(given, tools, offered=True))
    if len(names) == 1:
        return names[0]
    return {"type": "allowed_tools", "mode": "required", "tools": names}


def _not_empty(names: list[Item]) -> list[Item]:
    """The functions of which one has to be called; raises InvalidRequest for none."""
    if not names:
        raise InvalidRequest(
            "Invalid 'tool_choice': it names a tool that has nothing to be called.",
            code="invalid_value",
            param="tool_choice",
        )
    return names


def _named(choice: Mapping[str, Any], tools: Sequence[HostedTool], *, offered: bool) -> list[Item]:
    """The functions that stand for what is chosen, none where they are not ``offered``; what is no
    tool of these as it is.
    """
    chosen = [names for tool in tools if (names := tool.chosen(choice)) is not None]
    if not chosen:
        return [dict(choice)]
    return [{"type": "function", "name": name} for names in chosen for name in names if offered]
