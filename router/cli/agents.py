"""How each coding agent is pointed at a router: its environment, its command line, its files.

Nothing here reads or writes anything. The options and variables are those of Codex 0.169
(``codex --help``, its configuration reference), of Claude Code 2.1 ("Environment variables" and
"LLM gateway configuration" in its documentation) and of opencode 1.18 (its ``config.json`` schema).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["AGENTS", "DIRECTORY", "KEY", "Agent", "ServedModel", "Start", "Target"]

KEY: Final = "POINTSMAN_API_KEY"
"""The variable that holds the key for the router, here and in the agent's environment."""

DIRECTORY: Final = "{directory}"
"""Stands in a command line for the throw-away directory with ``Start.files``."""

_NO_KEY: Final = "none"
"""Sent to a router without keys, so that an agent does not send it a credential of the user's."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of the router's, and its context window in tokens, where the router knows it."""

    name: str
    context: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The router, and what of it the agent shall use. ``small`` is for an agent's side tasks.

    ``catalogue`` is the router's model list in Codex's format, where it has one.
    """

    url: str
    key: str | None = field(repr=False)
    model: ServedModel
    small: ServedModel
    models: Sequence[ServedModel]
    catalogue: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """What is run, with these changes of the environment; None takes a variable out of it."""

    command: tuple[str, ...]
    environment: Mapping[str, str | None]
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent's program, how it is installed, and what makes its start of target, arguments and
    the environment as it is.
    """

    program: str
    install: str
    start: Callable[[Target, Sequence[str], Mapping[str, str]], Start]


def _codex(target: Target, arguments: Sequence[str], _: Mapping[str, str]) -> Start:
    """A provider of its own: the built-in one would send the user's login to the router."""
    provider = {
        "name": "Pointsman",
        "base_url": f"{target.url}/v1",
        "wire_api": "responses",
        **({"env_key": KEY} if target.key is not None else {}),
    }
    overrides = {"model_provider": "pointsman", "model": target.model.name}
    files = {}
    if target.catalogue:
        files["models.json"] = json.dumps({"models": list(target.catalogue)}).encode()
        overrides["model_catalog_json"] = f"{DIRECTORY}/models.json"
    options = [f"{name}={_toml(value)}" for name, value in overrides.items()]
    table = ",".join(f"{name}={_toml(value)}" for name, value in provider.items())
    options.append(f"model_providers.pointsman={{{table}}}")
    given = [word for option in options for word in ("-c", option)]
    return Start(("codex", *given, *arguments), {KEY: target.key}, files)


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _claude(target: Target, arguments: Sequence[str], _: Mapping[str, str]) -> Start:
    told = {
        "ANTHROPIC_BASE_URL": target.url,
        "ANTHROPIC_MODEL": target.model.name,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": target.model.name,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": target.model.name,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": target.small.name,
    }
    if target.model.context is not None:
        told["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(target.model.context)
    key = target.key if target.key is not None else _NO_KEY
    environment: dict[str, str | None] = {
        **told,
        KEY: key,
        "ANTHROPIC_AUTH_TOKEN": key,
        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
    }
    # What a settings.json has in "env" counts for more than the environment, and these settings
    # for more than that. Everybody may read a command line: the helper knows where the key is.
    settings = {
        "apiKeyHelper": f"printenv {KEY}",
        "env": {**told, "ANTHROPIC_AUTH_TOKEN": "", "ANTHROPIC_API_KEY": ""},
    }
    given = any(word.split("=")[0] == "--settings" for word in arguments)
    ours = () if given else ("--settings", json.dumps(settings))
    for name in (
        "ANTHROPIC_API_KEY",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "ANTHROPIC_SMALL_FAST_MODEL",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_FOUNDRY",
        "CLAUDE_CODE_USE_VERTEX",
    ):
        environment[name] = None
    return Start(("claude", *ours, *arguments), environment)


def _opencode(target: Target, arguments: Sequence[str], environ: Mapping[str, str]) -> Start:
    """Raises ValueError where the user's own OPENCODE_CONFIG_CONTENT is no JSON object."""
    theirs = json.loads(environ.get(_CONTENT) or "{}")
    if not isinstance(theirs, dict) or not isinstance(theirs.get("provider", {}), dict):
        raise ValueError("it is no JSON object of opencode's configuration")
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Pointsman",
        "options": {
            "baseURL": f"{target.url}/v1",
            "apiKey": f"{{env:{KEY}}}" if target.key is not None else _NO_KEY,
        },
        "models": {model.name: _limits(model) for model in target.models},
    }
    content = {
        **theirs,
        "provider": {**theirs.get("provider", {}), "pointsman": provider},
        "model": f"pointsman/{target.model.name}",
        "small_model": f"pointsman/{target.small.name}",
    }
    environment = {KEY: target.key, _CONTENT: json.dumps(content)}
    return Start(("opencode", *arguments), environment)


_CONTENT: Final = "OPENCODE_CONFIG_CONTENT"
_LONGEST_OUTPUT: Final = 32_000
"""Tokens: opencode's own bound of an answer."""


def _limits(model: ServedModel) -> dict[str, Any]:
    if model.context is None:
        return {}
    output = min(_LONGEST_OUTPUT, max(model.context // 4, 1))
    return {"limit": {"context": model.context, "output": output}}


AGENTS: Final[Mapping[str, Agent]] = {
    "codex": Agent("codex", "npm install -g @openai/codex", _codex),
    "claude": Agent("claude", "npm install -g @anthropic-ai/claude-code", _claude),
    "opencode": Agent("opencode", "npm install -g opencode-ai", _opencode),
}
