"""The command line: ``pointsman serve | demo | launch | check | endpoints | keys | usage | probe |
state | embedder | simulate``.

Exit status: 0 all is well; 1 the settings, the address or the database cannot be used; 2 a wrong
command line, an endpoint or a database that did not answer ``check``, a router that did not answer
``endpoints`` or ``launch``, a model that ``probe`` could not ask, a name or field of ``keys`` that
cannot be, or stored state in which ``state`` found something broken; 127 an agent that is not
installed; 130 interrupted; 141 whoever read the output has left. ``launch`` ends as the agent does.
A mistake of the user is one line per mistake on stderr, never a traceback. Each command imports
what it needs when it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from router.cli import accounts as cli_accounts
from router.cli import cache as cli_cache
from router.cli import embedder as cli_embedder
from router.cli import endpoints as cli_endpoints
from router.cli import files as cli_files
from router.cli import keys as cli_keys
from router.cli import launch as cli_launch
from router.cli import prices as cli_prices
from router.cli import probe as cli_probe
from router.cli import serve as cli_serve
from router.cli import state as cli_state
from router.cli import tools as cli_tools
from router.cli import usage as cli_usage
from router.cli.terminal import printable

if TYPE_CHECKING:
    from router.probing.endpoint import ProbeResult
    from router.settings.schema import EndpointSettings, Settings
    from router.settings.watch import ConfigFile

__all__ = ["main"]

_MODELS_SHOWN = 50
_READER_LEFT = 141  # what a shell shows for a process that SIGPIPE ended
_PATTERN = re.compile(r"[*?\[]")


class _UserError(Exception):
    """Something the user has to put right; printed as it is."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: the process's own) and return its exit status."""
    try:
        try:
            return _run(argv)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would be written, and fail again, when Python ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return _READER_LEFT


def _run(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    try:
        status: int = args.run(args)
    except _UserError as exc:
        print(exc, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pointsman", description="One Responses API in front of a fleet of LLM backends."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    cli_serve.add_arguments(commands.add_parser("serve", help="run the router"), _serve, _port)

    demo = commands.add_parser("demo", help="run the router in front of simulated backends")
    demo.add_argument("--port", type=_port, default=8080, help="default: %(default)s")
    demo.set_defaults(run=_demo)

    cli_launch.add_arguments(
        commands.add_parser("launch", help="start a coding agent, pointed at a running router"),
        _launch,
    )

    check = commands.add_parser(
        "check", help="validate the settings, ask every endpoint and the database"
    )
    check.add_argument("--config", type=Path, required=True, metavar="FILE")
    check.set_defaults(run=_check)

    endpoints = commands.add_parser(
        "endpoints", help="show the endpoints of a running router, or drain one"
    )
    cli_endpoints.add_arguments(endpoints)
    endpoints.set_defaults(run=_endpoints)

    probe = commands.add_parser("probe", help="find out what the models of every endpoint can do")
    cli_probe.add_arguments(probe)
    probe.set_defaults(run=_probe_models)

    state = commands.add_parser("state", help="check, vacuum or export what is stored")
    cli_state.add_arguments(state)
    state.set_defaults(run=_state)

    keys = commands.add_parser("keys", help="make, show, change and revoke virtual keys")
    cli_keys.add_arguments(keys)
    keys.set_defaults(run=_state)

    usage = commands.add_parser("usage", help="report usage and cost")
    cli_usage.add_arguments(usage)
    usage.set_defaults(run=_usage)

    embedder = commands.add_parser("embedder", help="install or show the cache's local model")
    cli_embedder.add_arguments(embedder)

    simulate = commands.add_parser("simulate", help="run one simulated backend")
    simulate.add_argument(
        "--dialect", choices=("responses", "chat", "ollama", "messages"), required=True
    )
    simulate.add_argument("--port", type=_port, required=True)
    simulate.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    simulate.add_argument(
        "--models", type=_names, default=(), metavar="A,B", help="the models that it serves"
    )
    simulate.add_argument(
        "--load-seconds",
        type=_seconds,
        default=0.0,
        metavar="S",
        help="seconds that ollama takes to load a model (default: 0)",
    )
    simulate.set_defaults(run=_simulate)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"pointsman {version('pointsman')}")
        except PackageNotFoundError:
            print("pointsman (not installed)")
        parser.exit()


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65535:
        raise argparse.ArgumentTypeError("must be a number from 0 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError("must be a number of seconds")
    return seconds


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError("must be names with commas between them")
    return names


def _serve(args: argparse.Namespace) -> int:
    config = _config(args.config, host=args.host, port=args.port, workers=args.workers)
    settings = _loaded(config)
    with _usable(args.config), _listening_on(settings.server.host, settings.server.port):
        return cli_serve.run(settings, config, args)


def _demo(args: argparse.Namespace) -> int:
    from router import demo

    with _listening_on("127.0.0.1", args.port):
        return demo.run(args.port)


def _simulate(args: argparse.Namespace) -> int:
    from router.simulate import server

    return server.run(
        args.dialect, args.host, args.port, args.models, load_seconds=args.load_seconds
    )


def _check(args: argparse.Namespace) -> int:
    import asyncio

    from router.app import idle_services
    from router.plugin_loading import PluginLoader

    settings = _settings(args.config)
    with _usable(args.config):
        PluginLoader(idle_services(settings))(settings)
    count = len(settings.endpoints)
    print(f"{args.config} is valid; asking {count} endpoint{'s' if count > 1 else ''}", flush=True)
    results = asyncio.run(_probe_all(settings))
    for endpoint, result in zip(settings.endpoints, results, strict=True):
        costs = cli_prices.costs(settings, endpoint, result.models)
        print("\n" + "\n".join([*_described(endpoint, result), *costs]))
    kinds = (cli_state, cli_files, cli_cache, cli_accounts, cli_tools)
    stores = [one.glance(settings) for one in kinds]
    sound, remarks = cli_accounts.remarks(settings, results)
    print("\n" + "\n".join([*(line for _, line in stores if line), *remarks]))
    answered = sum(map(_can_serve, settings.endpoints, results))
    print(f"\n{answered} of {count} answered")
    usable = sound and all(usable for usable, _ in stores)
    return 0 if answered == count and usable else 2


def _endpoints(args: argparse.Namespace) -> int:
    return cli_endpoints.run(_settings(args.config) if args.config is not None else None, args)


def _launch(args: argparse.Namespace) -> int:
    return cli_launch.run(_settings(args.config) if args.config is not None else None, args)


def _probe_models(args: argparse.Namespace) -> int:
    return cli_probe.run(_settings(args.config), args)


def _state(args: argparse.Namespace) -> int:
    settings = _settings(args.config)
    with _usable(args.config):
        status: int = args.command(settings, args)
    return status


def _usage(args: argparse.Namespace) -> int:
    settings = _settings(args.config)
    with _usable(args.config):
        return cli_usage.run(settings, args)


def _settings(path: Path) -> Settings:
    return _loaded(_config(path))


def _config(
    path: Path, host: str | None = None, port: int | None = None, workers: str | None = None
) -> ConfigFile:
    """The file, with the command line's options in the place of what it says."""
    from router.settings.watch import ConfigFile

    environ = dict(os.environ)
    if host is not None:
        environ["POINTSMAN_SERVER__HOST"] = host
    if port is not None:
        environ["POINTSMAN_SERVER__PORT"] = str(port)
    if workers is not None:
        environ["POINTSMAN_SERVER__WORKERS"] = workers
    return ConfigFile(path, environ)


def _loaded(config: ConfigFile) -> Settings:
    from router.settings.document import SettingsError

    try:
        return config.load()
    except SettingsError as exc:
        raise _UserError(str(exc)) from None


@contextlib.contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Explain settings that are valid but cannot be used: a plugin, or a database."""
    from router.settings.load import SettingsError
    from router.state.database import StateError

    try:
        yield
    except StateError as exc:
        raise _UserError(f"{path}: state: {exc}") from None
    except SettingsError as exc:
        raise _UserError("\n".join(f"{path}: {mistake}" for mistake in exc.mistakes)) from None


@contextlib.contextmanager
def _listening_on(host: str, port: int) -> Iterator[None]:
    """Explain the errors of an address that cannot be listened on; others pass."""
    try:
        yield
    except socket.gaierror:
        raise _UserError(f"pointsman: {host} is not a known host") from None
    except OSError as exc:
        reasons = {
            errno.EADDRINUSE: "it is already in use; choose another port with --port",
            errno.EACCES: "not permitted; ports below 1024 need privileges",
            errno.EADDRNOTAVAIL: "this machine does not have that address",
        }
        if exc.errno not in reasons:
            raise
        message = f"pointsman: cannot listen on {host} port {port}: {reasons[exc.errno]}"
        raise _UserError(message) from None


async def _probe_all(settings: Settings) -> list[ProbeResult]:
    import asyncio

    return await asyncio.gather(*(_probe(endpoint) for endpoint in settings.endpoints))


async def _probe(endpoint: EndpointSettings) -> ProbeResult:
    import asyncio

    from router.probing.endpoint import ProbeResult, probe

    limit = endpoint.timeouts.connect + endpoint.timeouts.first_byte
    try:
        async with asyncio.timeout(limit):
            return await probe(endpoint)
    except TimeoutError:
        error = f"no answer within {limit:g} seconds"
        return ProbeResult(speaks=(), models=(), error=error, latency=limit)


def _can_serve(endpoint: EndpointSettings, result: ProbeResult) -> bool:
    # Where the models are configured, the endpoint need not be able to list them.
    listed = endpoint.models is not None and endpoint.dialect in result.speaks
    return result.error is None or listed


def _described(endpoint: EndpointSettings, result: ProbeResult) -> Iterator[str]:
    yield f"{endpoint.name}  {endpoint.url}"
    if not _can_serve(endpoint, result):
        yield f"  FAILED     {printable(result.error or '')}"
        yield f"  dialect    {_spoken(endpoint.dialect, result.speaks)}"
        if result.hint:
            yield f"  HINT       {printable(result.hint)}"
        return
    yield f"  reachable  in {result.latency * 1000:.0f} ms"
    yield f"  dialect    {_spoken(endpoint.dialect, result.speaks)}"
    if result.hint:
        yield f"  HINT       {printable(result.hint)}"
    if result.error is not None:
        yield f"  serves     what is configured; it does not tell: {printable(result.error)}"
        return
    shown = ", ".join(printable(name) for name in result.models[:_MODELS_SHOWN])
    more = len(result.models) - _MODELS_SHOWN
    yield f"  serves     {shown or 'no model'}{f' and {more} more' if more > 0 else ''}"
    if missing := _not_served(endpoint, result.models):
        yield f"  NOT LISTED {', '.join(printable(name) for name in missing)} (configured)"


def _spoken(configured: str, speaks: Sequence[str]) -> str:
    if configured in speaks:
        others = [name for name in speaks if name != configured]
        return configured + (f" (also {', '.join(others)})" if others else "")
    if speaks:
        return f"{configured} is configured, BUT IT SPEAKS {', '.join(speaks)}"
    return f"{configured} (configured, not confirmed)"


def _not_served(endpoint: EndpointSettings, served: Sequence[str]) -> list[str]:
    """The configured names, patterns aside, that the endpoint does not list."""
    from router.settings.model_names import fits

    names = dict.fromkeys([*(endpoint.models or ()), *endpoint.aliases.values()])
    missing = (name for name in names if not any(fits(one, name) for one in served))
    return [name for name in missing if not _PATTERN.search(name)]
