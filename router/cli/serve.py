"""``pointsman serve``: the router, in one process or several."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.settings.schema import Settings
    from router.settings.watch import ConfigFile

__all__ = ["add_arguments", "run"]


def add_arguments(
    serve: argparse.ArgumentParser,
    command: Callable[[argparse.Namespace], int],
    port: Callable[[str], int],
) -> None:
    """The command's arguments; ``port`` reads one."""
    serve.add_argument("--config", type=Path, required=True, metavar="FILE")
    serve.add_argument("--host", help="instead of server.host")
    serve.add_argument("--port", type=port, help="instead of server.port")
    serve.add_argument(
        "--workers", type=_workers, metavar="N|auto", help="instead of server.workers"
    )
    serve.add_argument("--worker", help=argparse.SUPPRESS)  # what a supervisor passes
    serve.set_defaults(run=command)


def run(settings: Settings, config: ConfigFile, args: argparse.Namespace) -> int:
    """Serve until a signal; the exit code."""
    from router import serve

    workers = settings.server.workers
    if workers == "auto":
        workers = _processors()
    if args.worker is None and workers > 1:
        if not hasattr(socket, "send_fds"):
            print("pointsman: several workers need Linux, macOS or another Unix", file=sys.stderr)
            return 1
        return serve.supervise(settings, _own_command(args), workers)
    return serve.run(settings, config, args.worker)


def _processors() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _workers(text: str) -> str:
    if text != "auto" and not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError("must be a number from 1 on, or auto")
    return text


def _own_command(args: argparse.Namespace) -> list[str]:
    """What serves with the same options, as a process of its own."""
    command = [sys.executable, "-m", "router", "serve", "--config", str(args.config)]
    for name in ("host", "port", "workers"):
        if (value := getattr(args, name)) is not None:
            command += [f"--{name}", str(value)]
    return command
