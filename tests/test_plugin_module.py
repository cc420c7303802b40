"""The public plugin module: all that the bundled plugins use of the router, and documented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from router import errors, plugin

_PLUGINS = sorted((Path(__file__).parents[1] / "plugins").rglob("*.py"))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("file", _PLUGINS, ids=lambda file: "/".join(file.parts[-2:]))
def test_the_bundled_plugins_use_nothing_else_of_the_router(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    of_the_router = {name for name in _imported(tree) if name.split(".")[0] == "router"}
    assert of_the_router <= {"router.plugin"}


def test_every_name_is_documented() -> None:
    documented = set(re.findall(r"``(\w+)``", plugin.__doc__ or "")) & set(plugin.__all__)
    undocumented = set(plugin.__all__) - documented
    assert undocumented <= set(errors.__all__)
    assert all(name in vars(plugin) for name in plugin.__all__)
