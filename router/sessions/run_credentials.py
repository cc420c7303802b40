"""Credentials in the tools of runs, which are not stored with them.

A run is stored before it is executed. What its tools carry to log in somewhere stays in the memory
of the router that accepted it, which executes it at once; where that router is gone before the run
produced anything, no other one can go on with it.
"""

from __future__ import annotations

from typing import Any, Final

from router.dialects.responses.echo import without_credentials
from router.errors import RouterError

__all__ = ["RunCredentials"]

_MOST: Final = 10_000
_GONE: Final = (
    "The credentials of the response's tools were known only to the router that accepted it, which "
    "is gone. Send the request again."
)


class RunCredentials:
    """The tools of accepted runs as they were given, by the run's id, until each is executed."""

    def __init__(self) -> None:
        self._tools: dict[str, list[dict[str, Any]]] = {}

    def keep(self, ident: str, body: dict[str, Any]) -> dict[str, Any]:
        """Keep the run's tools where they have credentials; the body as it may be stored."""
        tools = body.get("tools")
        if not tools or (stored := without_credentials(tools)) == tools:
            return body
        self._tools[ident] = tools
        if len(self._tools) > _MOST:  # of runs that another router has cancelled, say
            del self._tools[next(iter(self._tools))]
        return {**body, "tools": stored}

    def __contains__(self, ident: str) -> bool:
        return ident in self._tools

    def forget(self, ident: str) -> None:
        """The run is not executed."""
        self._tools.pop(ident, None)

    def restore(self, ident: str, body: dict[str, Any], *, had: bool) -> dict[str, Any]:
        """The body as it was given; ``had`` says whether there were credentials in it. Raises
        RouterError where they are gone.
        """
        tools = self._tools.pop(ident, None)
        if tools is not None:
            return {**body, "tools": tools}
        if had:
            raise RouterError(_GONE)
        return body
