"""A request's tool of type ``mcp``: what a server has, which of it may be called, and its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import orjson

from router.core.response_lifecycle import new_id
from router.dialects.hosted_items import hosted_function_name
from router.errors import InvalidRequest, ToolServerFailed
from router.settings.tools import ToolsSettings
from router.tools.hosted import HostedCall, ToolResult
from router.tools.mcp import (
    McpClients,
    McpError,
    McpNotInstalled,
    McpProtocolError,
    McpServer,
    McpTimeout,
    McpToolError,
    McpUnauthorized,
    McpUnreachable,
)

__all__ = ["McpToolset"]

Item = dict[str, Any]
Approval = Literal["always", "never"]

_NO_PARAMETERS: Final = {"type": "object", "properties": {}}
_LISTED: Final = {
    "description": str | None,
    "input_schema": dict | None,
    "annotations": dict | None,
}
_CODES: Final[Mapping[type[McpError], str]] = {
    McpNotInstalled: "not_installed",
    McpProtocolError: "protocol_error",
    McpTimeout: "timeout",
    McpUnauthorized: "unauthorized",
    McpUnreachable: "unreachable",
}
"""How errors are called in metrics and in the ledger."""

_REQUEST_TIMEOUT: Final = -32001
"""What the MCP SDKs call a request that was not answered in time."""


class McpToolset:
    """Implements ``router.tools.hosted.HostedTool``. ``given`` is the tool at ``index`` of the
    request, ``server`` where it is asked, ``name`` whose it is in metrics. ``history`` is the
    request's input: a list of tools in it is not asked for again.

    Raises InvalidRequest for a tool that is not well described.
    """

    kind = "mcp"
    type = "mcp_call"

    def __init__(
        self,
        index: int,
        given: Mapping[str, Any],
        server: McpServer,
        name: str,
        clients: McpClients,
        settings: ToolsSettings,
        history: Any,
    ) -> None:
        self.index = index
        self.server = name
        self._label = server.label
        self._server = server
        self._clients = clients
        where = f"tools[{index}]"
        self._allowed = _Filter.of(given.get("allowed_tools"), f"{where}.allowed_tools")
        known = settings.mcp.labelled(server.label) if name == server.label else None
        self._configured = known.allowed_tools if known is not None else None
        self._price = known.price_per_call if known is not None else 0.0
        self._always, self._never, self._default = _approvals(
            given.get("require_approval"),
            (known.require_approval if known is not None else None)
            or settings.mcp.require_approval,
            f"{where}.require_approval",
        )
        self._listed = _listed(history, self._label)
        self._known = self._listed is not None
        self._by_function: dict[str, Mapping[str, Any]] = {}
        self._functions: list[Item] = []

    async def prepare(self) -> None:
        """Have the server tell its tools, unless the history has them; raises ToolServerFailed."""
        if self._listed is None:
            try:
                self._listed = await self._list()
            except McpError as error:
                raise ToolServerFailed(
                    f"The tools of the MCP server '{self._label}' could not be listed. "
                    f"{error.message}",
                    param=f"tools[{self.index}]",
                    refused=isinstance(error, McpUnauthorized),
                ) from error
        for tool in self._listed:
            if not self._may_be_called(tool):  # the history's list is the client's to write
                continue
            name = hosted_function_name(self._label, tool["name"])
            self._by_function[name] = tool
            self._functions.append(
                {
                    "type": "function",
                    "name": name,
                    "description": tool.get("description") or "",
                    "parameters": tool.get("input_schema") or _NO_PARAMETERS,
                    "strict": False,
                }
            )

    async def _list(self) -> list[Item]:
        found = await self._clients.list_tools(self._server)
        listed: list[Item] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
                "annotations": tool.annotations or None,
            }
            for tool in found
        ]
        return [tool for tool in listed if self._may_be_called(tool)]

    def _may_be_called(self, tool: Item) -> bool:
        """Whether both the request and the configuration allow a tool."""
        name, annotations = tool["name"], tool.get("annotations")
        configured = self._configured is None or name in self._configured
        return configured and self._allowed.passes(name, annotations)

    def listed(self) -> Sequence[Item]:
        """See ``HostedTool.listed``: the server's tools, unless the client knows them."""
        if self._known:
            return ()
        return [
            {
                "id": new_id("mcpl_"),
                "type": "mcp_list_tools",
                "server_label": self._label,
                "tools": self._listed,
                "error": None,
            }
        ]

    def functions(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.functions``."""
        return self._functions

    def loaded(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.loaded``: it finds no tools."""
        return ()

    def chosen(self, choice: Mapping[str, Any]) -> Sequence[str] | None:
        """See ``HostedTool.chosen``."""
        if choice.get("type") != "mcp" or choice.get("server_label") != self._label:
            return None
        name = choice.get("name")
        return [
            function
            for function, tool in self._by_function.items()
            if name is None or tool["name"] == name
        ]

    def needs_approval(self, call: HostedCall) -> bool:
        """See ``HostedTool.needs_approval``."""
        tool = self._by_function[call.function]
        name, annotations = tool["name"], tool.get("annotations")
        if call.approval is not None or self._never.names(name, annotations):
            return False
        return self._always.names(name, annotations) or self._default == "always"

    def item(self, call: HostedCall) -> Item:
        """See ``HostedTool.item``."""
        return {
            "server_label": self._label,
            "name": self._by_function[call.function]["name"],
            "arguments": call.arguments,
            "output": None,
            "error": None,
            "approval_request_id": call.approval,
        }

    async def run(self, call: HostedCall, deadline: float) -> ToolResult:
        """See ``HostedTool.run``."""
        try:
            arguments = orjson.loads(call.arguments)
        except orjson.JSONDecodeError:
            arguments = None
        if not isinstance(arguments, dict):
            return self.failed(call, "The arguments are not a JSON object.", "invalid_arguments")
        name = self._by_function[call.function]["name"]
        try:
            result = await self._clients.call(
                self._server, name, arguments, deadline=deadline, call_id=call.call_id
            )
        except McpToolError as error:
            return self._error(error.message)
        except McpError as error:
            return self.failed(call, error.message, _CODES.get(type(error), "mcp_error"))
        if result.is_error:
            return self._error(result.text)
        return ToolResult(result.text, {"output": result.text, "error": None}, cost=self._price)

    def _error(self, text: str) -> ToolResult:
        """The tool itself says that it failed: the model may call it in another way."""
        content = [{"type": "text", "text": text}]
        error = {"type": "mcp_tool_execution_error", "content": content}
        return ToolResult(f"Error: {text}", {"error": error}, "tool_error", cost=self._price)

    def failed(self, call: HostedCall, message: str, error: str) -> ToolResult:
        """See ``HostedTool.failed``."""
        shown = {"type": "mcp_protocol_error", "code": _REQUEST_TIMEOUT, "message": message}
        if error != "timeout":
            shown["code"] = -32000
        return ToolResult(f"Error: {message}", {"error": shown}, error)


class _Filter:
    """Which tools are meant: by name, and whether they only read."""

    def __init__(self, names: frozenset[str] | None, read_only: bool | None) -> None:
        self._names = names
        self._read_only = read_only

    @classmethod
    def of(cls, given: Any, where: str) -> _Filter:
        """A list of names, or ``{tool_names, read_only}``; raises InvalidRequest."""
        if given is None:
            return cls(None, None)
        names, read_only = given, None
        if isinstance(given, dict):
            names, read_only = given.get("tool_names"), given.get("read_only")
        if names is not None and not (
            isinstance(names, list) and all(isinstance(name, str) for name in names)
        ):
            raise InvalidRequest(
                f"Invalid type for '{where}': expected a list of names, or an object with "
                "'tool_names' and 'read_only'.",
                code="invalid_type",
                param=where,
            )
        return cls(
            frozenset(names) if names is not None else None,
            read_only if isinstance(read_only, bool) else None,
        )

    def passes(self, name: str, annotations: Mapping[str, Any] | None) -> bool:
        """Whether a tool is meant; without a condition all are."""
        if self._names is not None and name not in self._names:
            return False
        return self._read_only is None or _reads(annotations) is self._read_only

    def names(self, name: str, annotations: Mapping[str, Any] | None) -> bool:
        """The same; without a condition none is."""
        if self._names is None and self._read_only is None:
            return False
        return self.passes(name, annotations)


_NOBODY: Final = _Filter(frozenset(), None)


def _reads(annotations: Mapping[str, Any] | None) -> bool:
    return bool(annotations and annotations.get("readOnlyHint"))


def _approvals(given: Any, default: Approval, where: str) -> tuple[_Filter, _Filter, Approval]:
    """Which tools need approval always and never, and what holds for the others."""
    if given is None:
        return _NOBODY, _NOBODY, default
    if given in ("always", "never"):
        return _NOBODY, _NOBODY, given
    if not isinstance(given, dict):
        raise InvalidRequest(
            f"Invalid value for '{where}': expected 'always', 'never', or an object with these.",
            code="invalid_value",
            param=where,
        )
    always = _Filter.of(given.get("always") or [], f"{where}.always")
    never = _Filter.of(given.get("never") or [], f"{where}.never")
    return always, never, default


def _listed(history: Any, label: str) -> list[Item] | None:
    """The tools of the server as the history has them, in all of its lists: two tools of a request
    may name one server. None without a list, and where one is not well formed.
    """
    lists = [
        item["tools"]
        for item in (history if isinstance(history, list) else ())
        if item.get("type") == "mcp_list_tools"
        and item.get("server_label") == label
        and not item.get("error")
        and isinstance(item.get("tools"), list)
    ]
    tools = [tool for listed in lists for tool in listed]
    if not lists or not all(map(_is_listed, tools)):
        return None
    return list({tool["name"]: tool for tool in tools}.values())


def _is_listed(tool: Any) -> bool:
    """Whether a list may have this as one of its tools."""
    return (
        isinstance(tool, dict)
        and isinstance(tool.get("name"), str)
        and all(isinstance(tool.get(name), kind) for name, kind in _LISTED.items())
    )
