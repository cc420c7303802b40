"""What else a user holds on to: operations, settings, commands, metrics, the database."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson

from router.cli.main import main
from router.settings.schema import Settings
from tests.golden.exchange import exchange
from tests.support.fleet import routed

__all__ = ["SURFACES"]

_ENDPOINT: Final = {"name": "one", "url": "http://127.0.0.1:9/v1", "dialect": "chat"}
_UNSAID: Final = ("title", "description", "properties", "required")
_COMMANDS: Final = re.compile(r"(?m)^ {4}([a-z][a-z-]*)(?: |$)")


async def _operations() -> str:
    """The description that is served, a line for each operation and each schema."""
    async with routed(_ENDPOINT) as url:
        document = (await exchange(url, "GET", "/openapi.json")).json
    document["info"].pop("version")
    paths, components = document.pop("paths"), document.pop("components")
    lines = [_line("document", document)]
    for path, operations in paths.items():
        lines += [_line(f"{method.upper()} {path}", how) for method, how in operations.items()]
    for kind, named in components.items():
        lines += [_line(f"{kind}/{name}", one) for name, one in named.items()]
    return "\n".join(lines) + "\n"


async def _settings() -> str:
    """A line for each setting: its path in the configuration file, and its schema."""
    schema = Settings.model_json_schema()
    return "".join(line + "\n" for line in _below("", schema, schema.pop("$defs")))


def _below(path: str, schema: dict[str, Any], sections: dict[str, Any]) -> Iterator[str]:
    """``sections`` are the objects that schemas refer to, by name."""
    node = {name: value for name, value in schema.items() if name not in _UNSAID}
    for inner, at in ((schema, ""), (node.pop("items", {}), "[]"), (_values(node), ".*")):
        for one in (inner, *inner.get("anyOf", ())):
            name = one.get("$ref", "").rpartition("/")[2]
            properties = sections[name] if name else one
            for key, value in properties.get("properties", {}).items():
                yield from _below(f"{path}{at}.{key}".lstrip("."), value, sections)
    if path and "$ref" not in schema:
        yield _line(path, node)


def _values(node: dict[str, Any]) -> dict[str, Any]:
    """The schema of a mapping's values."""
    values = node.pop("additionalProperties", {})
    return values if isinstance(values, dict) else {}


def _line(name: str, value: Any) -> str:
    return f"{name} {orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()}"


async def _commands() -> str:
    """The help of every command."""
    return "\n".join(_helps([]))


def _helps(command: list[str]) -> Iterator[str]:
    shown = io.StringIO()
    with _columns(100), contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    text = shown.getvalue()
    yield text
    _, _, arguments = text.partition("positional arguments:\n")
    for name in _COMMANDS.findall(arguments.partition("\n\n")[0]):
        yield from _helps([*command, name])


@contextlib.contextmanager
def _columns(wide: int) -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(wide)
    try:
        yield
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


async def _metrics() -> str:
    """Names, types and help of the metrics."""
    async with routed(_ENDPOINT) as url:
        body = (await exchange(url, "GET", "/metrics")).body.decode()
    return "".join(sorted(line + "\n" for line in body.splitlines() if line.startswith("#")))


async def _database() -> str:
    """Tables and indexes of a new SQLite database."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "state.db"
        async with routed(_ENDPOINT, state={"url": f"sqlite:///{path}"}) as url:
            await exchange(url, "GET", "/v1/models")
        with contextlib.closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
            return "".join(sorted(" ".join(sql.split()) + "\n" for (sql,) in rows))


SURFACES: Final[dict[str, Callable[[], Awaitable[str]]]] = {
    "operations": _operations,
    "settings": _settings,
    "commands": _commands,
    "metrics": _metrics,
    "database": _database,
}
"""By the name of the file."""
