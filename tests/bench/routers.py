"""Starts Pointsman as it ships, in front of the mock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from . import messages
from .check import Checker
from .children import Children, free_port
from .measure import Target

__all__ = ["DIALECTS", "OWNER", "Routers"]

DIALECTS: Final = {
    "responses": ("/v1", "/v1/responses"),
    "chat": ("/v1", "/v1/chat/completions"),
    "ollama": ("", "/api/chat"),
    "messages": ("/v1", messages.PATH),
}
"""Dialect -> path of the endpoint's base URL, path on which its requests reach the mock."""

OWNER: Final = "bench"
"""The name of the client key, to which everything that is stored belongs."""

_KEY_VARIABLE: Final = "BENCH_CLIENT_KEY"
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Routers:
    """What all routers of a run have in common; ``key`` is the client key."""

    children: Children
    directory: Path
    core: int
    mock_port: int
    key: str

    async def start(
        self,
        process: str,
        name: str,
        dialect: str,
        state: Mapping[str, Any],
        more: Mapping[str, Any] = _NOTHING,
        module: str = "router",
    ) -> Target:
        """One more router, called ``process`` in logs and ``name`` in tables, when it answers.
        ``more`` are further sections of its configuration; ``module`` is what serves it.
        """
        port = free_port()
        config = self.directory / f"router-{process}.yaml"
        config.write_text(yaml.safe_dump({**self._config(port, dialect, state), **more}))
        child = self.children.start(
            process,
            self.core,
            ["-m", module, "serve", "--config", str(config)],
            {_KEY_VARIABLE: self.key},
        )
        await child.ready(port, "/ready")
        if dialect == "messages":
            checker, form = messages.MessagesChecker(), messages.as_messages
            return Target(name, port, messages.PATH, child, checker, form)
        return Target(name, port, DIALECTS[dialect][1], child, Checker(own_ids=True))

    def _config(self, port: int, dialect: str, state: Mapping[str, Any]) -> dict[str, Any]:
        endpoint: dict[str, Any] = {
            "name": "mock",
            "url": f"http://127.0.0.1:{self.mock_port}{DIALECTS[dialect][0]}",
            "dialect": dialect,
            "models": ["mock-*"],
            "max_in_flight": 4096,
        }
        return {
            "server": {"host": "127.0.0.1", "port": port},
            "auth": {"keys": [{"name": OWNER, "key": f"${{{_KEY_VARIABLE}}}"}]},
            "endpoints": [endpoint],
            "state": dict(state),
        }
