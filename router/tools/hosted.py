"""What a hosted tool is to the loop that runs it.

A client names hosted tools (``mcp``, ``web_search``) and has none of the work: the model calls
them, whoever hosts them runs them, and the client sees items such as ``mcp_call`` in the answer. To
the model they are functions, whatever API its endpoint speaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from router.tools.code_interpreter.citations import NamedFile
from router.tools.file_search.citations import FileSource
from router.tools.web_search.outcome import WebSource

__all__ = [
    "TOOL_SEARCH",
    "HostedCall",
    "HostedTool",
    "ToolResult",
    "called_function",
]

Item = dict[str, Any]

TOOL_SEARCH: Final = "tool_search"
"""The function that a search for tools is a call of."""


def called_function(item: Mapping[str, Any]) -> str | None:
    """The function that an output item calls; None for any other item, and for a call of a tool in
    a namespace, which is the client's.
    """
    if item.get("type") == "function_call" and item.get("namespace") is None:
        return item.get("name")
    if item.get("type") == "tool_search_call" and item.get("execution") == "client":
        return TOOL_SEARCH
    return None


@dataclass(frozen=True, slots=True)
class HostedCall:
    """A model's call of a function that stands for a hosted tool. ``arguments`` are JSON text;
    ``call_id`` is the endpoint's name for the call, ``approval`` the id of the approval request
    that it waited for.
    """

    call_id: str
    function: str
    arguments: str
    approval: str | None = None


@dataclass(slots=True)
class ToolResult:
    """What came of a call: ``text`` is for the model, ``fields`` are those of the item that has
    ended. ``error`` is a short code where it failed, for metrics and the ledger.
    """

    text: str
    fields: Mapping[str, Any]
    error: str | None = None
    sources: Sequence[WebSource] = ()
    """Pages that the text quotes: the answer may cite them."""
    files: Sequence[FileSource] = ()
    """Results that the text quotes, of files: the answer may cite them."""
    cost: float = 0.0
    """What the call cost, in US dollars."""
    tools: Sequence[Item] | None = None
    """What a search for tools has found. It is on offer from then on, and shown."""
    made: Sequence[NamedFile] = ()
    """Files that code has made, which the answer may name."""


class HostedTool(Protocol):
    """One hosted tool of one request."""

    kind: str
    """What it is, in metrics and in the ledger: ``mcp``, ``web_search``, ``file_search``,
    ``tool_search``."""
    server: str
    """Whose it is: the label of a configured server, the provider's name, ``client``, or
    ``router``."""
    type: str
    """The type of the items that its calls are shown as."""
    index: int
    """Its place in the request's ``tools``."""

    async def prepare(self) -> None:
        """Make ready, once, before anything else. Raises RouterError where that cannot be."""
        ...

    def listed(self) -> Sequence[Item]:
        """Items that the answer begins with: what there is to be called."""
        ...

    def functions(self) -> Sequence[Mapping[str, Any]]:
        """What the model is offered: function tools of the Responses API."""
        ...

    def loaded(self) -> Sequence[Mapping[str, Any]]:
        """Functions of the client's own that it has found, and that are offered from now on."""
        ...

    def chosen(self, choice: Mapping[str, Any]) -> Sequence[str] | None:
        """The names of those functions that a ``tool_choice``, or an entry of its allowed tools,
        stands for; None where it is not about this tool.
        """
        ...

    def needs_approval(self, call: HostedCall) -> bool:
        """Whether the client has to approve of the call before it is run."""
        ...

    def item(self, call: HostedCall) -> Item:
        """The item of a call that is about to be run, without ``id``, ``type`` and ``status``."""
        ...

    async def run(self, call: HostedCall, deadline: float) -> ToolResult:
        """Run it, once, by ``deadline`` (of the event loop's clock). What fails is a result that
        says so; nothing is raised but CancelledError.
        """
        ...

    def failed(self, call: HostedCall, message: str, error: str) -> ToolResult:
        """The result of a call that was not run to its end, for a reason of the loop's."""
        ...
