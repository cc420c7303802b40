"""``pointsman launch``: start an installed coding agent, pointed at a running router.

The agent gets an environment and a command line. What it can read from a file only is in a
directory of its own, which is gone when the agent has ended. The user's own files are left alone.
The key comes from the environment or a file, and reaches the agent in its environment.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from router.cli.agents import AGENTS, DIRECTORY, KEY, ServedModel, Start, Target
from router.cli.running_router import CommandError, RunningRouter, address, is_url
from router.cli.terminal import printable

if TYPE_CHECKING:
    from router.settings.schema import Settings

__all__ = ["URL", "add_arguments", "run"]

URL: Final = "POINTSMAN_URL"
"""The variable with the router's address."""

_DEFAULT_URL: Final = "http://127.0.0.1:8080"
_CATALOGUE: Final = "/v1/models?client_version=0.169.0"
"""The model list, with Codex's beside it."""
_SHOWN: Final = 20
_NOT_INSTALLED: Final = 127  # as a shell has it
_KEY_BYTES: Final = 8192
_MASK: Final = "***"
_NO_CHAT: Final = ("embed", "rerank")
"""In the names of models that no agent can use, by custom."""


def add_arguments(
    launch: argparse.ArgumentParser, command: Callable[[argparse.Namespace], int]
) -> None:
    """Add the agents, and the options of each; ``run`` is then the command."""
    launch.set_defaults(run=command)
    agents = launch.add_subparsers(metavar="AGENT", required=True, dest="agent")
    for name in AGENTS:
        agent = agents.add_parser(
            name,
            help=f"start {name}",
            usage=f"pointsman launch {name} [options] [-- ARGUMENT ...]",
            description=f"Starts {name} with an environment that points it at a running router. "
            f"The user's own files stay as they are. The router's key is read from {KEY}.",
        )
        where = agent.add_mutually_exclusive_group()
        where.add_argument(
            "--url", help=f"the router's address; default: ${URL}, else {_DEFAULT_URL}"
        )
        where.add_argument(
            "--config", type=Path, metavar="FILE", help="the router's, for its address"
        )
        agent.add_argument(
            "--key-file", type=Path, metavar="FILE", help=f"has the router's key, instead of ${KEY}"
        )
        agent.add_argument(
            "--model", metavar="NAME", help="default: the first that the router lists"
        )
        agent.add_argument(
            "--small-model", metavar="NAME", help="for side tasks; default: the same model"
        )
        agent.add_argument(
            "--print", action="store_true", help="show what would be run, and do not run it"
        )
        agent.add_argument("arguments", nargs="*", metavar="ARGUMENT", help=f"{name}'s own")


def run(settings: Settings | None, args: argparse.Namespace) -> int:
    """Start the agent and return its exit status; does not return where nothing is to be done
    after it. 127: not installed; 2: no router answers; 1: it serves no such model, or refuses.
    """
    agent = AGENTS[args.agent]
    try:
        program = shutil.which(agent.program)
        if program is None and not args.print:
            raise CommandError(
                f"pointsman: {agent.program} is not installed: {agent.install}", _NOT_INSTALLED
            )
        target = _target(_router(settings, args), args)
        try:
            start = agent.start(target, args.arguments, os.environ)
        except ValueError as exc:
            raise CommandError(f"pointsman: OPENCODE_CONFIG_CONTENT: {exc}") from None
    except CommandError as failed:
        print(failed, file=sys.stderr)
        return failed.status
    if args.print:
        print("\n".join(_shown(start, target.key)))
        return 0
    print(f"pointsman: {args.agent} with {_chosen(target)}", file=sys.stderr, flush=True)
    return _started(program or agent.program, start)


def _router(settings: Settings | None, args: argparse.Namespace) -> RunningRouter:
    url = args.url or os.environ.get(URL) or _DEFAULT_URL
    if settings is not None:
        url = address(settings, args.config)
    # Agents add the paths of the API by themselves.
    url = url.rstrip("/").removesuffix("/v1")
    if not is_url(url):
        raise CommandError(f'pointsman: --url and {URL} must be like "http://host:port"', 2)
    if args.key_file is None:
        return RunningRouter(url, os.environ.get(KEY) or None, KEY)
    return RunningRouter(url, _read_key(args.key_file), f"the key in {args.key_file}")


def _read_key(path: Path) -> str:
    try:
        with path.open("rb") as file:
            key = file.read(_KEY_BYTES).decode("ascii").strip()
    except OSError as exc:
        raise CommandError(f"pointsman: {path}: {exc.strerror}") from None
    except UnicodeDecodeError:
        key = ""
    if not key or not key.isprintable() or " " in key:
        raise CommandError(f"pointsman: {path} has to hold a key, in one line")
    return key


def _target(router: RunningRouter, args: argparse.Namespace) -> Target:
    import asyncio

    return asyncio.run(_asked(router, args.model, args.small_model))


async def _asked(router: RunningRouter, wanted: str | None, small: str | None) -> Target:
    """What the router has; it need not list a name that it serves, such as an alias's."""
    told = router.decoded(await router.ask("GET", _CATALOGUE))
    try:
        catalogue = [dict(one) for one in told.get("models", ())]
        contexts = {one["slug"]: one.get("context_window") for one in catalogue}
        names = [str(one["id"]) for one in told["data"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise router.unknown() from None
    models = {name: ServedModel(name, contexts.get(name)) for name in names}
    chosen = wanted if wanted is not None else _first(router, [*contexts, *names])
    for name in dict.fromkeys([chosen, small or chosen]):
        if name not in models:
            await router.ask("GET", f"/v1/models/{quote(name, safe='')}")
            models[name] = ServedModel(name, contexts.get(name))
    return Target(
        router.url,
        router.key,
        models[chosen],
        models[small or chosen],
        list(models.values()),
        catalogue,
    )


def _first(router: RunningRouter, names: Sequence[str]) -> str:
    for name in names:
        if not any(word in name.lower() for word in _NO_CHAT):
            return name
    raise CommandError(
        f"pointsman: the router at {router.url} lists no model for an agent; "
        "say one that it serves with --model"
    )


def _chosen(target: Target) -> str:
    """The model, and which others there are."""
    others = [printable(m.name) for m in target.models if m.name != target.model.name]
    more = f", and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    choice = f" (--model: {', '.join(others[:_SHOWN])}{more})" if others else ""
    return f"{printable(target.model.name)} at {target.url}{choice}"


def _shown(start: Start, key: str | None) -> Iterator[str]:
    """The environment and the command line for a shell, without the key."""
    for name, value in sorted(start.environment.items()):
        if value is None:
            yield f"unset {name}"
        else:
            shown = _MASK if value == key else shlex.quote(value)
            yield f"export {name}={shown}"
    for name, content in start.files.items():
        yield f"# {DIRECTORY}/{name}: {len(content)} bytes, removed in the end"
    yield shlex.join(start.command)


def _started(program: str, start: Start) -> int:
    environ = _changed(start.environment)
    if not start.files:
        sys.stdout.flush()
        os.execve(program, start.command, environ)
    with tempfile.TemporaryDirectory(prefix="pointsman-launch-") as directory:
        for name, content in start.files.items():
            Path(directory, name).write_bytes(content)
        words = [word.replace(DIRECTORY, directory) for word in start.command]
        return _waited_for(program, words, environ)


def _changed(changes: Mapping[str, str | None]) -> dict[str, str]:
    changed = {**os.environ, **changes}
    return {name: value for name, value in changed.items() if value is not None}


def _waited_for(program: str, words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run it, pass signals on, and give back its exit status as a shell would."""
    child: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if child:
            child[0].send_signal(number)
        else:
            early.append(number)

    def leave_to_the_agent(*_: Any) -> None:
        """A terminal sends these to the agent as well."""

    handlers: dict[signal.Signals, Any] = {
        signal.SIGTERM: pass_on,
        signal.SIGHUP: pass_on,
        signal.SIGINT: leave_to_the_agent,
        signal.SIGQUIT: leave_to_the_agent,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        child.append(subprocess.Popen(words, executable=program, env=environ))
        for number in early:
            child[0].send_signal(number)
        status = child[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status
