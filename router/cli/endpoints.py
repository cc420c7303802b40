"""``pointsman endpoints``: how the endpoints of a running router are, and taking one out.

It asks the router's admin routes, with the key of the configuration's file or of the environment.
The table goes to standard output, what goes wrong is one line on standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from router.cli.running_router import CommandError, RunningRouter, address, is_url
from router.cli.terminal import aligned, printable

if TYPE_CHECKING:
    from router.endpoints.report import BreakerReport, EndpointReport, ModelReport
    from router.http.admin import FleetReport
    from router.settings.schema import Settings

__all__ = ["KEY", "add_arguments", "run"]

KEY: Final = "POINTSMAN_ADMIN__KEY"
"""The variable with the key; it is the one that sets admin.key in a router's environment."""

_HEADINGS: Final = (
    "ENDPOINT", "STATE", "CONNECTION", "MODEL", "GRADE", "SLOTS", "BREAKER", "MEMORY",
    "TTFT-RECENT", "TTFT-P95",
)  # fmt: skip
_NO_MODEL: Final = ("-",) * 7


def add_arguments(endpoints: argparse.ArgumentParser) -> None:
    """Add the options."""
    endpoints.add_argument(
        "action",
        nargs="?",
        choices=("drain", "undrain"),
        metavar="drain|undrain",
        help="stop or resume sending requests to an endpoint; default: show all",
    )
    endpoints.add_argument("name", nargs="?", metavar="NAME", help="the endpoint")
    endpoints.add_argument(
        "--config", type=Path, metavar="FILE", help="the router's, for its address and admin.key"
    )
    endpoints.add_argument(
        "--url", help=f"of another router, or another address; without --config, {KEY} has the key"
    )
    endpoints.add_argument("--json", action="store_true", help="for machines")


def run(settings: Settings | None, args: argparse.Namespace) -> int:
    """Ask, print, and return the exit status: 2 where no router answers."""
    import asyncio

    try:
        router = _router(settings, args)
        if (args.action is None) is not (args.name is None):
            raise CommandError("pointsman: say which endpoint: pointsman endpoints drain NAME", 2)
        path = "/admin/endpoints"
        if args.action is not None:
            path += f"/{quote(args.name, safe='')}/{args.action}"
        body = asyncio.run(router.ask("GET" if args.action is None else "POST", path))
        _show(router, body, args)
    except CommandError as failed:
        print(failed, file=sys.stderr)
        return failed.status
    return 0


def _router(settings: Settings | None, args: argparse.Namespace) -> RunningRouter:
    """Where to ask, and with which key."""
    url = args.url
    if settings is None:
        if url is None:
            raise CommandError("pointsman: say which router: --config FILE, or --url URL", 2)
        key = os.environ.get(KEY, "")
        if not key:
            raise CommandError(
                f"pointsman: {KEY} is not set; it has to hold the router's admin key"
            )
    else:
        if settings.admin.key is None:
            raise CommandError(
                f"{args.config}: admin.key is not set, so the router's admin routes are closed"
            )
        key = settings.admin.key.get_secret_value()
        url = url or address(settings, args.config)
    if not is_url(url):
        raise CommandError('pointsman: --url must be like "http://host:port"', 2)
    return RunningRouter(url.rstrip("/"), key, "the admin key")


def _show(router: RunningRouter, body: bytes, args: argparse.Namespace) -> None:
    report = router.decoded(body)
    try:
        if args.action is not None:
            lines = list(aligned([_HEADINGS, *_rows(report)]))
        else:
            lines = list(_described(report))
    except (KeyError, TypeError, ValueError):
        raise router.unknown() from None
    print(body.decode() if args.json else "\n".join(lines))


def _described(report: FleetReport) -> Iterator[str]:
    queue = report["queue"]
    yield (
        f"policy {printable(report['policy'])}   queue {queue['waiting']} of {queue['size']}   "
        f"retries left {report['retries_left']}"
    )
    reload = report["reload"]
    if reload is not None and not reload["ok"]:
        yield "the last reload was refused:"
        yield from (f"  {printable(reason)}" for reason in reload["said"])
    yield ""
    rows = [row for endpoint in report["endpoints"] for row in _rows(endpoint)]
    yield from aligned([_HEADINGS, *rows])
    for endpoint in report["endpoints"]:
        if (problem := endpoint["problem"]) is not None:
            yield f"{printable(endpoint['name'])}: {printable(problem)}"


def _rows(endpoint: EndpointReport) -> Iterator[tuple[str, ...]]:
    """A row for each model that was asked for or is in memory, and one for all others."""
    first = (
        printable(endpoint["name"]),
        printable(endpoint["state"]),
        _breaker(endpoint["connection"]),
    )
    models = [_model(model) for model in endpoint["models"]]
    loaded = [one["model"] for one in endpoint["unasked"] if one["loaded"]]
    models += [(printable(name), "-", "-", "-", "loaded", "-", "-") for name in loaded]
    others = len(endpoint["unasked"]) - len(loaded)
    if others:
        models.append((f"({others} not asked for)", *_NO_MODEL[1:]))
    for model in models or [_NO_MODEL]:
        yield (*first, *model)


def _model(model: ModelReport) -> tuple[str, ...]:
    return (
        printable(model["model"]),
        _grade(model),
        f"{model['in_flight']}/{model['limit']}",
        _breaker(model["breaker"]),
        _memory(model),
        _seconds(model["first_token"]),
        _seconds(model["first_token_p95"]),
    )


def _grade(model: ModelReport) -> str:
    grade = printable(model["grade"])
    left = model["cooling_for"]
    if left is None:
        return grade
    return f"{grade} {left:.0f} s{' (rate limit)' if model['rate_limited'] else ''}"


def _breaker(breaker: BreakerReport) -> str:
    state = printable(breaker["state"])
    if breaker["half_open_in"] is not None:
        return f"{state} {_seconds(breaker['half_open_in'])}"
    failed = breaker["failure_ratio"]
    return f"{state} {failed:.0%} failed" if failed >= 0.01 else state


def _memory(model: ModelReport) -> str:
    if model["loading_for"] is not None:
        return f"loading {model['loading_for']:.0f} s"
    return {True: "loaded", False: "no", None: "-"}[model["loaded"]]


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
