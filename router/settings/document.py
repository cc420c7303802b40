"""YAML as plain data that remembers where each value stood.

References to environment variables are resolved in values that YAML has already cut out, so that
a variable can change a value, never the structure. A mistake does not stop the reading: it is
noted with its line, and the value is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

__all__ = ["Mistake", "Place", "SettingsDocument", "SettingsError"]

Place = tuple[str | int, ...]

_MAX_DEPTH = 20
_MAX_NODES = 100_000
_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}|\$\{")
_KEY = re.compile(r"[A-Za-z][A-Za-z_-]{0,31}")
_OF_MODELS = frozenset({"aliases", "capabilities", "fallbacks"})
_YAML = "tag:yaml.org,2002:"
_TEXTS = {_YAML + kind for kind in ("str", "timestamp", "value", "merge")}
_SCALARS = {_YAML + kind for kind in ("null", "bool", "int", "float")}
# PyYAML's own words for these quote the file, or say nothing.
_YAML_PROBLEMS = {
    "found undefined alias": 'a value that begins with "*" must be put in quotes',
    "second occurrence": 'an anchor ("&") is defined twice',
    "found undefined tag handle": 'a value that begins with "!" must be put in quotes',
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake: the dotted ``field``, its ``line`` in the file, and what to do about it.

    ``source`` is the file or the environment variable; ``line`` counts from 1 and is None for a
    variable; ``field`` is empty where none is concerned.
    """

    field: str
    line: int | None
    message: str
    source: str = ""

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (where, self.field, self.message) if part)


class SettingsError(Exception):
    """The settings cannot be used; ``str()`` has one line per mistake, in the file's order."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = sorted(mistakes, key=lambda m: (m.line is None, m.line or 0, m.field))
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


@dataclass
class SettingsDocument:
    """YAML as plain data that remembers where each value stood."""

    source: str
    environ: Mapping[str, str] | None  # None: references are left alone
    data: Any = None
    lines: dict[Place, int | None] = field(default_factory=dict)
    variables: dict[Place, str] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    broken: set[Place] = field(default_factory=set)
    nodes: int = 0

    def read(self, text: str, place: Place = ()) -> None:
        """Fill ``data`` with what belongs at ``place`` of the settings.

        Raises ``SettingsError`` where the text is no YAML at all.
        """
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            self.data = {} if root is None else self._value(root, place)
        except yaml.YAMLError as exc:
            line, message = _yaml_problem(exc, text)
            raise SettingsError([Mistake("", line, message, self.source)]) from None
        except RecursionError:
            message = "is nested too deeply, or too large"
            raise SettingsError([Mistake("", 1, message, self.source)]) from None

    def report(self, place: Place, message: str) -> None:
        """Add a mistake at the line, or with the variable, of ``place`` or what encloses it."""
        for end in range(len(place), -1, -1):
            if (variable := self.variables.get(place[:end])) is not None:
                self.mistakes.append(Mistake(_dotted(place), None, message, variable))
                return
        near = (self.lines[place[:n]] for n in range(len(place), -1, -1) if place[:n] in self.lines)
        self.mistakes.append(Mistake(_dotted(place), next(near, 1), message, self.source))

    def _fault(self, place: Place, message: str) -> None:
        self.broken.add(place)
        self.report(place, message)

    def _value(self, node: yaml.Node, place: Place) -> Any:
        self.lines.setdefault(place, node.start_mark.line + 1)
        self.nodes += 1
        if len(place) > _MAX_DEPTH or self.nodes > _MAX_NODES:
            raise RecursionError
        if isinstance(node, yaml.MappingNode) and node.tag == _YAML + "map":
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode) and node.tag == _YAML + "seq":
            return [self._value(item, (*place, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag in _TEXTS:
            return self._text(node.value, place)
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            return self._scalar(node, place)
        self._fault(place, 'a value that begins with "!" must be put in quotes')
        return ""

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.value == "<<":
                self.mistakes.append(
                    Mistake(_dotted(place), line, "a key must be plain text", self.source)
                )
                continue
            here = (*place, key_node.value)
            if here in self.lines:
                message = f"is given twice, first on line {self.lines[here]}"
                self.mistakes.append(Mistake(_dotted(here), line, message, self.source))
                continue
            self.lines[here] = line
            value = self._value(value_node, here)
            # A broken value is left out, so that only its own mistake is reported.
            if here not in self.broken:
                result[key_node.value] = value
        return result

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        try:
            return yaml.constructor.SafeConstructor().construct_document(node)
        except (ValueError, KeyError, OverflowError):
            self._fault(place, "is not a valid number, true, false or null")
            return ""

    def _text(self, text: str, place: Place) -> str:
        if self.environ is None or "${" not in text:
            return text
        value, problems = _substitute(text, self.environ)
        for problem in problems:
            self._fault(place, problem)
        return value


def _substitute(text: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    problems: list[str] = []

    def resolve(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match[0] == "$${":
            return "${"
        if name is None:
            problems.append('has a "${" that is neither ${NAME} nor ${NAME:-default}')
            return ""
        value = environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            problems.append(f"the environment variable {name} is not set")
            return ""
        return value

    return _REFERENCE.sub(resolve, text), problems


def _yaml_problem(exc: yaml.YAMLError, text: str) -> tuple[int, str]:
    """The line of a syntax error and a message without anything of the file in it."""
    if isinstance(exc, yaml.reader.ReaderError):
        line = text.count("\n", 0, exc.position) + 1
        return line, "is not valid YAML: a character that is not allowed"
    if not isinstance(exc, yaml.MarkedYAMLError):
        return 1, "is not valid YAML"
    mark = exc.problem_mark or exc.context_mark
    index = mark.line if mark is not None else 0
    problem = exc.problem or "cannot be understood"
    for beginning, plain in _YAML_PROBLEMS.items():
        if problem.startswith(beginning):
            problem = plain
    if "${" in "".join(text.splitlines()[index : index + 1]):
        problem += " (inside {...} and [...], put values with ${...} in quotes)"
    return index + 1, f"is not valid YAML: {problem}"


def _dotted(place: Place) -> str:
    """``("endpoints", 0, "url")`` as ``endpoints[0].url``."""
    text = ""
    above: str | int = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        elif above in _OF_MODELS or _KEY.fullmatch(step):
            text += f".{step}"
        else:
            # What does not look like a key may be a secret that slipped out of its value.
            text += ".(key not shown)"
        above = step
    return text.removeprefix(".")
