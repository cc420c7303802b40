"""Names of functions for tools that are in groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable
from hashlib import sha256
from typing import Final

__all__ = ["flat_names", "is_fit", "marked"]

_MOST_IN_NAME: Final = 64
"""Characters of a function's name at OpenAI and at most engines."""

_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_MARK: Final = 10


def flat_names(
    tools: Iterable[tuple[str, str]], taken: Container[str] = ()
) -> dict[tuple[str, str], str]:
    """A function's name for each tool, by its group and its name: ``GROUP__TOOL``, of at most 64 of
    ``A-Z a-z 0-9 _ -``.

    Different tools have different names, none of them ``taken``. One that is too long, has other
    characters, is taken, or that another tool would have as well, ends in a hash of the two. The
    names do not depend on the order of the tools.
    """
    plain = {tool: f"{tool[0]}__{tool[1]}" for tool in tools}
    shared = Counter(plain.values())
    names: dict[tuple[str, str], str] = {}
    others: list[tuple[str, str]] = []
    for tool, name in plain.items():
        if shared[name] == 1 and name not in taken and is_fit(name):
            names[tool] = name
        else:
            others.append(tool)
    used = set(names.values())
    for tool in sorted(others):
        attempt = 0
        while (name := marked(*tool, attempt)) in used or name in taken:
            attempt += 1
        names[tool] = name
        used.add(name)
    return {tool: names[tool] for tool in plain}


def is_fit(name: str) -> bool:
    """Whether a function may be called so everywhere."""
    return 0 < len(name) <= _MOST_IN_NAME and _UNFIT.search(name) is None


def marked(group: str, name: str, attempt: int = 0) -> str:
    """The name of a tool in a group, with a hash of both: another one in each attempt."""
    plain = _UNFIT.sub("_", f"{group}__{name}" if group else name)
    text = f"{group}\0{name}" + (f"\0{attempt}" if attempt else "")
    mark = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK]
    return f"{plain[: _MOST_IN_NAME - _MARK - 1]}_{mark}"
