"""``pointsman endpoints``: how the endpoints of a running router are, and taking one out.

It asks the router's admin routes, with the key of the configuration's file or of the environment.
The table goes to standard output, what goes wrong is one line on standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from router.cli.terminal import aligned, printable

if TYPE_CHECKING:
    from router.endpoints.report import BreakerReport, EndpointReport, ModelReport
    from router.http.admin import FleetReport
    from router.settings.schema import Settings

__all__ = ["KEY", "add_arguments", "run"]

KEY: Final = "POINTSMAN_ADMIN__KEY"
"""The variable with the key; it is the one that sets admin.key in a router's environment."""

_SECONDS: Final = 10.0
_MAX_BYTES: Final = 64 * 1024 * 1024
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where it listens: how to get there
_HEADINGS: Final = (
    "ENDPOINT", "STATE", "CONNECTION", "MODEL", "GRADE", "SLOTS", "BREAKER", "MEMORY",
    "TTFT-RECENT", "TTFT-P95",
)  # fmt: skip
_NO_MODEL: Final = ("-",) * 7


class _CommandError(Exception):
    """What to tell the user; ``status`` is the exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


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
            raise _CommandError("pointsman: say which endpoint: pointsman endpoints drain NAME", 2)
        path = "/admin/endpoints"
        if args.action is not None:
            path += f"/{quote(args.name, safe='')}/{args.action}"
        body = asyncio.run(_asked(router, "GET" if args.action is None else "POST", path))
        _show(router, body, args)
    except _CommandError as failed:
        print(failed, file=sys.stderr)
        return failed.status
    return 0


@dataclass(frozen=True, slots=True)
class _Router:
    url: str
    key: str


def _router(settings: Settings | None, args: argparse.Namespace) -> _Router:
    """Where to ask, and with which key."""
    url = args.url
    if settings is None:
        if url is None:
            raise _CommandError("pointsman: say which router: --config FILE, or --url URL", 2)
        key = os.environ.get(KEY, "")
        if not key:
            raise _CommandError(
                f"pointsman: {KEY} is not set; it has to hold the router's admin key"
            )
    else:
        if settings.admin.key is None:
            raise _CommandError(
                f"{args.config}: admin.key is not set, so the router's admin routes are closed"
            )
        key = settings.admin.key.get_secret_value()
        url = url or _address(settings, args.config)
    if not _is_url(url):
        raise _CommandError('pointsman: --url must be like "http://host:port"', 2)
    return _Router(url.rstrip("/"), key)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    return bool(usable) and "@" not in parts.netloc and not (parts.query or parts.fragment)


def _address(settings: Settings, config: Path) -> str:
    server = settings.server
    if not server.port:
        raise _CommandError(f"{config}: server.port is 0, any free one; say which with --url")
    host = _ANY_ADDRESS.get(server.host, server.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"


async def _asked(router: _Router, method: str, path: str) -> bytes:
    """The router's answer; raises _Failed for any other."""
    import aiohttp

    # No proxy, and nothing that is redirected: the key is for this address only.
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    headers = {"Authorization": f"Bearer {router.key}"}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.request(
                method, router.url + path, headers=headers, allow_redirects=False
            ) as response,
        ):
            status = response.status
            body = await response.content.read(_MAX_BYTES)
            while not response.content.at_eof():
                body += await response.content.read(_MAX_BYTES)
                if len(body) > _MAX_BYTES:
                    raise _not_a_router(router)
    except TimeoutError:
        raise _CommandError(
            f"pointsman: {router.url} did not answer in {_SECONDS:g} s", 2
        ) from None
    except aiohttp.ClientConnectorError as exc:
        reason = os.strerror(exc.errno) if exc.errno and exc.errno > 0 else printable(str(exc))
        raise _CommandError(f"pointsman: no router answers at {router.url}: {reason}", 2) from None
    except (aiohttp.ClientError, ValueError, OSError) as exc:
        raise _CommandError(f"pointsman: {router.url}: {printable(str(exc))}", 2) from None
    if status != 200:
        raise _refused(router, status, body)
    return body


def _refused(router: _Router, status: int, body: bytes) -> _CommandError:
    if status == 401:
        return _CommandError(f"pointsman: the router at {router.url} refuses the admin key")
    try:
        message = str(_decoded(router, body)["error"]["message"])
    except (_CommandError, KeyError, TypeError):
        return _CommandError(f"pointsman: {router.url} is no Pointsman router: HTTP {status}", 2)
    return _CommandError(f"pointsman: {printable(message)}")


def _not_a_router(router: _Router) -> _CommandError:
    return _CommandError(
        f"pointsman: {router.url} is no Pointsman router that this command knows", 2
    )


def _decoded(router: _Router, body: bytes) -> Any:
    import orjson

    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise _not_a_router(router) from None


def _show(router: _Router, body: bytes, args: argparse.Namespace) -> None:
    report = _decoded(router, body)
    try:
        if args.action is not None:
            lines = list(aligned([_HEADINGS, *_rows(report)]))
        else:
            lines = list(_described(report))
    except (KeyError, TypeError, ValueError):
        raise _not_a_router(router) from None
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
    return f"{grade} {left:.0f} s{' (429)' if model['rate_limited'] else ''}"


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
