"""Real coding agents, started with ``pointsman launch`` in a home and a directory of their own."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from router.settings.schema import Dialect
from router.simulate import brain
from tests.support.fleet import simulated
from tests.support.guests import PATIENCE, node_packages
from tests.support.processes import Processes, RouterProcess
from tests.support.scripted_model import Call, ScriptedModel

__all__ = ["KEY", "MCP_SERVER", "MODEL", "Stage", "agent_programs", "stage"]

ROOT = Path(__file__).parents[2]
KEY = "sk-test-agents"
MODEL = "scripted"
MCP_SERVER: Final[Mapping[str, Any]] = {
    "command": sys.executable,
    "args": ["-m", "tests.support.tool_server"],
    "env": {"PYTHONPATH": os.pathsep.join(dict.fromkeys([str(ROOT), *filter(None, sys.path)]))},
}
"""An MCP server on stdio, whose tool ``add`` adds two numbers."""

_PROGRAMS: Final = {
    "codex": "@openai/codex-*/vendor/*/bin/codex",
    "claude": "@anthropic-ai/claude-code-*/claude",
    "opencode": "opencode-*/bin/opencode",
}
"""Where the packages keep what their scripts of installation, which are not run, would link to."""
_QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "IS_SANDBOX": "1",  # tools without questions, for root too
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "NO_PROXY": "127.0.0.1",
    "HTTPS_PROXY": "http://127.0.0.1:9",  # nothing reaches their vendors
}


def agent_programs() -> Path:
    """A directory with the agents' programs; installs them the first time."""
    home = node_packages(ROOT / "tests" / "agents" / "node")
    programs = home / "programs"
    programs.mkdir(exist_ok=True)
    for name, pattern in _PROGRAMS.items():
        found = sorted((home / "node_modules").glob(pattern), key=lambda path: len(path.parts))
        fitting = [path for path in found if "musl" not in path.parts[-2:][0]]
        if not fitting:
            pytest.skip(f"{name} has no program for {platform.machine()}")
        link = programs / f"{name}.{os.getpid()}"
        link.symlink_to(min(fitting, key=lambda path: len(str(path))))
        link.replace(programs / name)
    return programs


@dataclass
class Stage:
    """A router in front of one scripted endpoint, and a user with a project."""

    router: RouterProcess
    model: ScriptedModel
    home: Path
    programs: Path

    @property
    def project(self) -> Path:
        """Where the agents work."""
        return self.home / "project"

    async def launch(self, agent: str, *arguments: str, **environ: str) -> str:
        """Start the agent and wait for its end; what it printed."""
        return await self.run(
            *(sys.executable, "-m", "router", "launch", agent, "--url", self.router.url),
            *("--model", MODEL, "--", *arguments),
            POINTSMAN_API_KEY=KEY,
            **environ,
        )

    async def run(self, *command: str, **environ: str) -> str:
        """Run a program as the user does; fails where it does, with all that it printed."""
        status, text = await self.ended(*command, **environ)
        assert status == 0, f"{text[-4000:]}\n{self.model.problems}"
        return text

    async def ended(self, *command: str, **environ: str) -> tuple[int | None, str]:
        """Run a program as the user does; how it ended, and all that it printed."""
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.project,
            env={
                **_QUIET,
                "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(self.home),
                "PYTHONPATH": MCP_SERVER["env"]["PYTHONPATH"],
                **environ,
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(PATIENCE):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode, output.decode(errors="replace")

    def files(self) -> dict[str, str]:
        """What is in the project, by name."""
        return {path.name: path.read_text() for path in self.project.iterdir() if path.is_file()}

    def refusals(self) -> list[dict[str, Any]]:
        """The lines of the access log with a status that is not one of success."""
        return [line for line in self.accesses() if line["status"] >= 400]

    def accesses(self) -> list[dict[str, Any]]:
        """The lines of the access log."""
        lines = map(json.loads, self.router.log.read_text().splitlines())
        access = [line for line in lines if line.get("component") == "access"]
        assert access, "the router has no access log"
        return access

    def went_well(self) -> None:
        """Nobody was refused anything, and the model was offered what its scripts need."""
        assert not self.model.problems, self.model.problems
        refusals = self.refusals()
        assert not refusals, refusals


@asynccontextmanager
async def stage(
    dialect: Dialect,
    scripts: Mapping[str, Sequence[Call]],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    context: int | None = None,
    **settings: Any,
) -> AsyncIterator[Stage]:
    """An endpoint of this dialect that plays the scripts, with a router in front of it that is told
    its ``context``, in tokens.
    """
    model = ScriptedModel(scripts, strict=dialect in ("chat", "ollama"))
    monkeypatch.setattr(brain, "answer", model.answer)
    (home / "project").mkdir()
    programs = agent_programs()
    with Processes(home) as processes:
        async with simulated(dialect, models=[MODEL]) as [endpoint]:
            router = await processes.router(
                "router",
                {
                    "endpoints": [
                        {**endpoint, "aliases": {"claude-*": MODEL}, "context_length": context}
                    ],
                    "auth": {"keys": [{"name": "team", "key": KEY}]},
                    "state": {"url": f"sqlite:///{home / 'state.db'}"},
                    "logging": {"access": True, "format": "json"},
                    **settings,
                },
            )
            yield Stage(router, model, home, programs)
