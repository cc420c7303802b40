"""``pointsman keys create | list | update | rotate | revoke``: virtual keys, in the database.

A running router notices within seconds. A new secret is all there is on standard output, so that
``KEY=$(pointsman keys create …)`` has it; everything else goes to standard error. Each command is
a function of the settings and its arguments that returns the exit status: 1 where the router asks
nobody for a key, 2 for a name or a field that cannot be. StateError is left to the caller.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from router.cli.terminal import printable

if TYPE_CHECKING:
    from router.settings.schema import Settings
    from router.usage.keys import Issued, KeyStore

__all__ = ["add_arguments"]

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])")
_BUDGET: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(usd|tokens)/(day|week|month|total)")
_LIMITS: Final = {
    "rpm": "requests_per_minute", "tpm": "tokens_per_minute", "concurrent": "concurrent"
}  # fmt: skip
_FIELDS: Final = (
    "models", "endpoints", "default_model", "expires", "tags", "budgets", "priority"
)  # fmt: skip
_PAGE: Final = 500
_NOTHING: Final = argparse.SUPPRESS


def add_arguments(keys: argparse.ArgumentParser) -> None:
    """Add the subcommands; ``command`` is then the function to call."""
    commands = keys.add_subparsers(metavar="COMMAND", required=True)

    create = _command(commands, "create", _create, "make a key; its secret goes to standard output")
    create.add_argument("name", metavar="NAME", help="the key's name; stored objects belong to it")
    _may(create)

    listing = _command(
        commands, "list", _list, "list all keys, including those in the configuration"
    )
    listing.add_argument("--json", action="store_true", help="for machines")

    update = _command(
        commands, "update", _update, "change what a key may do; what is not named stays"
    )
    update.add_argument("name", metavar="NAME")
    _may(update)
    for option, field, what in (
        ("--all-models", "models", "any model"),
        ("--all-endpoints", "endpoints", "any endpoint"),
        ("--no-tags", "tags", "remove all tags"),
        ("--no-budgets", "budgets", "remove all budgets"),
    ):
        update.add_argument(
            option, dest=field, action="store_const", const=None, default=_NOTHING, help=what
        )

    rotate = _command(commands, "rotate", _rotate, "replace a key's secret")
    rotate.add_argument("name", metavar="NAME")
    rotate.add_argument(
        "--grace", type=_duration, default=0.0, metavar="1h",
        help="how long the old secret stays valid (default: not at all)",
    )  # fmt: skip

    revoke = _command(commands, "revoke", _revoke, "revoke a key for good")
    revoke.add_argument("name", metavar="NAME")


def _command(
    commands: Any, name: str, command: Callable[[Settings, argparse.Namespace], int], what: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=what)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.set_defaults(command=command)
    return parser


def _may(parser: argparse.ArgumentParser) -> None:
    """The options of what a key may do; what is not given is not in the namespace."""

    def add(option: str, **how: Any) -> None:
        parser.add_argument(option, default=_NOTHING, **how)

    add("--models", type=_names, metavar="A,B", help="models that it may use, as names or patterns")
    add(
        "--endpoints",
        type=_names,
        metavar="A,B",
        help="endpoints that may serve it, as names or patterns",
    )
    add(
        "--default-model", type=_model, metavar="NAME|none",
        help="the model of its requests that name none",
    )  # fmt: skip
    add("--expires", type=_expiry, metavar="30d|DATE|never", help="when it expires")
    add("--tag", dest="tags", action="append", metavar="T", help="repeatable")
    add(
        "--budget", dest="budgets", action="append", type=_budget, metavar="50usd/month",
        help="or 2000000tokens/day; week and total, too; repeatable",
    )  # fmt: skip
    add("--rpm", type=_number, metavar="N|none", help="requests per minute")
    add("--tpm", type=_number, metavar="N|none", help="tokens per minute")
    add("--concurrent", type=_number, metavar="N|none", help="requests at once")
    add("--priority", type=_number, metavar="N", help="its priority in the queue; 1 is first")


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError("must be names or patterns with commas between them")
    return names


def _model(text: str) -> str | None:
    return None if text == "none" else text


def _duration(text: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError('must be a duration such as "1h" or "30d"')
    return float(found[1]) * _SECONDS[found[2]]


def _expiry(text: str) -> str | None:
    """The moment in ISO 8601, or whatever else was given: the settings say what is wrong."""
    if text == "never":
        return None
    if _DURATION.fullmatch(text) is None:
        return text
    try:
        return (datetime.now(UTC) + timedelta(seconds=_duration(text))).isoformat()
    except OverflowError:
        raise argparse.ArgumentTypeError("is too far away") from None


def _budget(text: str) -> dict[str, Any]:
    found = _BUDGET.fullmatch(text.lower().replace("_", ""))
    if found is None or (found[2] == "tokens" and "." in found[1]):
        raise argparse.ArgumentTypeError(
            'must be like "50usd/month" or "2000000tokens/day", by day, week, month or total'
        )
    amount, unit, period = found.groups()
    return {"period": period, unit: float(amount) if unit == "usd" else int(amount)}


def _number(text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15 and int(text)):
        raise argparse.ArgumentTypeError("must be a number from 1 up, or none")
    return int(text)


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of the key that the command line names."""
    given = vars(args)
    fields = {name: given[name] for name in _FIELDS if name in given}
    limits = {field: given[option] for option, field in _LIMITS.items() if option in given}
    return fields | ({"limits": limits} if limits else {})


def _endpoints(settings: Settings) -> list[str]:
    return [endpoint.name for endpoint in settings.endpoints]


def _hint(settings: Settings, fields: dict[str, Any]) -> None:
    """Say what may be a slip. Of models it is what the configuration knows, asking nobody."""
    from router.endpoints.catalogue import Catalogue, serves
    from router.endpoints.plan import Fallbacks
    from router.usage.key_lint import hints

    catalogues = [*map(Catalogue, settings.endpoints)]
    fallbacks = Fallbacks(settings.fallbacks)

    def served(model: str) -> bool | None:
        return True if fallbacks.has(model) else serves(catalogues, model)

    for hint in hints(fields, served, settings.accounts.tags):
        _say(f"warning: {printable(hint)}")


def _create(settings: Settings, args: argparse.Namespace) -> int:
    configured = [key.name for key in settings.auth.keys]
    if not configured:
        return _complain(
            f"{args.config}: auth.keys is empty, so this router asks nobody for a key and a "
            "virtual key would open nothing; configure a key first",
            1,
        )
    fields = _given(args)

    async def create(store: KeyStore) -> int:
        issued = await store.create(
            args.name, fields, reserved=configured, endpoints=_endpoints(settings)
        )
        _hint(settings, fields)
        return _show(issued, f"created {args.name}; this is its secret, which is kept nowhere")

    return _done(settings, create, None)


def _update(settings: Settings, args: argparse.Namespace) -> int:
    changes = _given(args)
    if not changes:
        return _complain("pointsman: say what to change", 2)

    async def update(store: KeyStore) -> int:
        await store.update(args.name, changes, endpoints=_endpoints(settings))
        _hint(settings, changes)
        return _say(f"changed {args.name}")

    return _changed(settings, args, update)


def _rotate(settings: Settings, args: argparse.Namespace) -> int:
    async def rotate(store: KeyStore) -> int:
        issued = await store.rotate(args.name, args.grace)
        until = issued.key.previous_until
        old = "refused" if until is None else f"good until {_at(until)}"
        return _show(issued, f"rotated {args.name}; this is its secret, the old one is {old}")

    return _changed(settings, args, rotate)


def _revoke(settings: Settings, args: argparse.Namespace) -> int:
    async def revoke(store: KeyStore) -> int:
        await store.revoke(args.name)
        return _say(f"revoked {args.name}")

    return _changed(settings, args, revoke)


def _list(settings: Settings, args: argparse.Namespace) -> int:
    import orjson

    from router.cli.keys_table import table
    from router.usage.keys_json import shown_configured, shown_virtual

    now = time.time()
    keys = [shown_configured(key, now) for key in settings.auth.keys]

    async def read(store: KeyStore) -> int:
        after = ""
        while page := await store.page(after, _PAGE):
            keys.extend(shown_virtual(key, now) for key in page)
            after = page[-1].name
        return 0

    status = _done(settings, read, lambda: 0)
    if status:
        return status
    if args.json:
        print(orjson.dumps(keys).decode())
    elif keys:
        print("\n".join(table(keys)))
    else:
        _say("there are no keys")
    return 0


def _changed(
    settings: Settings, args: argparse.Namespace, work: Callable[[KeyStore], Awaitable[int]]
) -> int:
    """``work`` on a key, unless it is one of the configuration."""
    for index, key in enumerate(settings.auth.keys):
        if key.name == args.name:
            place = f"{args.config}: auth.keys[{index}]"
            return _complain(f"{args.name} is configured, and changed there: {place}", 2)
    missing = f"There is no virtual key '{args.name}'."
    return _done(settings, work, lambda: _complain(missing, 2))


def _done(
    settings: Settings,
    work: Callable[[KeyStore], Awaitable[int]],
    empty: Callable[[], int] | None,
) -> int:
    """What ``work`` returns for the store of keys; raises StateError.

    A database without tables is left as it is, and ``empty`` called; without it they are made.
    """
    import asyncio

    return asyncio.run(_on_the_database(settings, work, empty))


async def _on_the_database(
    settings: Settings,
    work: Callable[[KeyStore], Awaitable[int]],
    empty: Callable[[], int] | None,
) -> int:
    from router.errors import RouterError, StateUnavailable
    from router.state.connect import open_database
    from router.state.maintenance.access import given_up, is_current, place_of
    from router.telemetry.log import configure
    from router.usage.keys import KeyStore

    configure("warning", settings.logging.format)
    is_new = not await is_current(settings.state)
    if is_new and empty is not None:
        return empty()
    database = open_database(settings.state)
    try:
        await database.start()
        if is_new:
            print(f"there was no database yet: made {place_of(settings.state)}", file=sys.stderr)
        return await work(KeyStore(database))
    except StateUnavailable as error:
        raise given_up(error) from None
    except RouterError as error:
        return _complain(error.message, 2)
    finally:
        await database.close()


def _show(issued: Issued, what: str) -> int:
    print(what, file=sys.stderr, flush=True)
    print(issued.secret.get_secret_value(), flush=True)
    return 0


def _say(what: str) -> int:
    print(what, file=sys.stderr)
    return 0


def _complain(what: str, status: int) -> int:
    print(printable(what), file=sys.stderr)
    return status


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
