"""``pointsman state check | vacuum | export``: the command lines, and what they print.

Each command is a function of the settings and its arguments that returns the exit status; what
they do is in ``router.state.maintenance``. StateError is left to the caller.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import BinaryIO

    from router.settings.schema import Settings
    from router.state.maintenance.check import CheckReport
    from router.state.maintenance.export import Exported

__all__ = ["add_arguments", "glance"]

_NOTHING: Final = "nothing is stored yet; the tables are made at the first start"


def add_arguments(state: argparse.ArgumentParser) -> None:
    """Add the subcommands; ``command`` is then the function to call."""
    commands = state.add_subparsers(metavar="COMMAND", required=True)

    check = commands.add_parser("check", help="report what is stored, and what is damaged")
    _config(check)
    check.add_argument("--json", action="store_true", help="for machines")
    check.set_defaults(command=_check)

    vacuum = commands.add_parser(
        "vacuum",
        help="delete what is past its retention, and free the disk space",
        description="Deletes what is past its retention, and frees the disk space. A router may "
        "be running; a large SQLite file is then not rewritten, since writes would wait for it.",
    )
    _config(vacuum)
    vacuum.add_argument("--rewrite", action="store_true", help="rewrite a large SQLite file, too")
    vacuum.set_defaults(command=_vacuum)

    export = commands.add_parser(
        "export", help="write everything that belongs to one key as JSON Lines"
    )
    _config(export)
    export.add_argument(
        "--owner", required=True, metavar="NAME", help="the name of a key; 'default' without keys"
    )
    export.add_argument("--output", type=Path, metavar="FILE", help="instead of standard output")
    export.add_argument(
        "--include-reasoning",
        action="store_true",
        help="also the encrypted reasoning that the client did not ask for",
    )
    export.set_defaults(command=_export)


def _config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")


def glance(settings: Settings) -> tuple[bool, str]:
    """Whether the database can be used, and a line that says so; for ``pointsman check``."""
    import asyncio

    from router.state.database import StateError
    from router.state.maintenance.access import shown_url
    from router.state.maintenance.check import glance as look

    url = shown_url(settings.state)
    try:
        return True, f"state  {url}  {asyncio.run(look(settings.state))}"
    except StateError as exc:
        return False, f"state  {url}  FAILED: {exc}"


def _check(settings: Settings, args: argparse.Namespace) -> int:
    import asyncio

    from router.state.maintenance.check import check

    report = asyncio.run(check(settings.state))
    if args.json:
        print(_as_json(report))
    else:
        print("\n".join(_described(report)))
    return 2 if report.problems else 0


def _as_json(report: CheckReport) -> str:
    import orjson

    from router.state.schema import SCHEMA_VERSION

    return orjson.dumps(
        {
            "url": report.url,
            "schema_version": report.version,
            "known_schema_version": SCHEMA_VERSION,
            "size_bytes": report.size,
            "counts": report.counts,
            "oldest_response": report.oldest,
            "problems": [
                {"problem": found.what, "count": found.count, "examples": found.examples}
                for found in report.problems
            ],
        }
    ).decode()


def _described(report: CheckReport) -> Iterator[str]:
    from router.state.schema import SCHEMA_VERSION

    yield report.url
    if report.version == 0:
        yield f"  schema         none: {_NOTHING}"
    elif report.version < SCHEMA_VERSION:
        yield f"  schema         version {report.version}, {SCHEMA_VERSION} after the next start"
    else:
        yield f"  schema         version {report.version}"
    if report.size:
        yield f"  size           {_bytes(report.size)}"
    if report.counts:
        yield from _counted(report.counts, report.oldest)
    if not report.problems:
        yield "\nno problem found"
        return
    number = len(report.problems)
    yield f"\n{number} problem{'s' if number > 1 else ''} found"
    for found in report.problems:
        yield f"  {found.what}: {found.count}"
        yield from (f"    {example}" for example in found.examples)
        if found.count > len(found.examples):
            yield "    ..."


def _counted(counts: dict[str, int], oldest: int | None) -> Iterator[str]:
    since = "" if oldest is None else f", the oldest of {_date(oldest)}"
    yield f"  responses      {counts['responses']}{since}"
    yield f"  conversations  {counts['conversations']}, with {counts['items']} items"
    yield f"  prompts        {counts['prompts']}"
    states = ("queued", "running", "ending", "over")
    yield "  runs           " + ", ".join(f"{counts['runs_' + name]} {name}" for name in states)
    yield f"  events         {counts['events']}"
    yield f"  routers        {counts['routers']} alive"
    yield f"  usage          {counts['usage']} rows"
    yield f"  virtual keys   {counts['keys']}"
    if abandoned := counts["abandoned_runs"]:
        yield f"  abandoned      {abandoned} runs whose router is gone; the next router ends them"


def _vacuum(settings: Settings, args: argparse.Namespace) -> int:
    import asyncio

    from router.state.maintenance.vacuum import vacuum

    _log_to_stderr(settings)
    days = settings.accounts.retention_days
    freed = asyncio.run(vacuum(settings.state, rewrite=args.rewrite, usage_days=days))
    if freed is None:
        print(_NOTHING)
        return 0
    print(f"deleted   {freed.objects} objects past retention")
    print(f"deleted   {freed.usage} rows of usage past retention")
    print(f"removed   {freed.routers} routers that are gone")
    change = freed.before - freed.after
    word = "freed" if change >= 0 else "grown by"
    print(f"size      {_bytes(freed.after)}, {word} {_bytes(abs(change))}")
    if freed.left:
        print(
            f"kept      {_bytes(freed.left)} of unused room, which new rows will fill: a router is "
            "running, whose writes would\n          wait while the file is rewritten. Run this "
            "while no router does, or with --rewrite."
        )
    return 0


def _export(settings: Settings, args: argparse.Namespace) -> int:
    import asyncio

    from router.state.maintenance.export import export

    _log_to_stderr(settings)
    try:
        with _output(args.output) as file:
            exported = asyncio.run(
                export(settings.state, args.owner, file.write, reasoning=args.include_reasoning)
            )
    except BrokenPipeError:
        # Whoever reads has seen enough. Python would complain about it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as exc:
        name = args.output or "standard output"
        print(f"{name}: cannot be written: {exc.strerror}", file=sys.stderr)
        return 1
    return _told(exported, args.owner)


def _told(exported: Exported, owner: str) -> int:
    found = (
        f"{exported.responses} responses, {exported.conversations} conversations, "
        f"{exported.prompts} prompts, {exported.usage} rows of usage"
    )
    whole = exported.responses or exported.conversations or exported.prompts or exported.usage
    if whole or exported.damaged:
        print(found, file=sys.stderr)
    else:
        print(f"nothing is stored for {owner}", file=sys.stderr)
    for place in exported.damaged:
        print(f"damaged, left out: {place}", file=sys.stderr)
    return 2 if exported.damaged else 0


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears under its name when it is complete."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _log_to_stderr(settings: Settings) -> None:
    from router.telemetry.log import configure

    configure("warning", settings.logging.format)


def _date(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
