"""What holds for the names and the imports of the whole tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path for room in ("router", "plugins", "cache") for path in (ROOT / room).rglob("*.py")
)


@cache
def trees() -> dict[Path, ast.Module]:
    """Every module, parsed."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def module(path: Path) -> str:
    """The name that it is imported by."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_a_class_name_means_one_thing() -> None:
    classes: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name.lstrip("_")].append(f"{module(path)}.{node.name}")
    assert {name: where for name, where in classes.items() if len(where) > 1} == {}


def imported(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """The modules that are imported with this one; not those imported for types, or later."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module or ""


def test_no_module_imports_itself_by_way_of_others() -> None:
    modules = {module(path) for path in FILES}
    imports = {module(path): set(imported(tree, modules)) for path, tree in trees().items()}
    left = {name: needed & modules for name, needed in imports.items()}
    while free := {name for name, needed in left.items() if not needed & left.keys()}:
        left = {name: needed for name, needed in left.items() if name not in free}
    assert sorted(left) == []
