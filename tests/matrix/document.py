"""The matrix as a document for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.matrix.asking import PATHS
from tests.matrix.cases import FEATURES
from tests.matrix.expected import expected
from tests.matrix.others import OTHERS
from tests.matrix.stand import COLUMNS

__all__ = ["PATH", "document"]

PATH: Final = Path(__file__).parents[2] / "SURFACES.md"

_ERROR: Final = re.compile(r"(\d{3})(?: (\w+))?: (.*)")
_MODEL: Final = re.compile(r"model '[^']*'")
_HEAD: Final = """\
<!-- made by python -m tests.matrix.make -->
# What every API carries to every kind of endpoint

Every cell is a request over a real connection to a router in front of a simulated endpoint, whose
answer is checked for what it means: the right call with the right arguments (and its result sent
back), the image that reached the endpoint, JSON that fits its schema, the tokens that the endpoint
counted. But for *text* and *stream*, each is asked for whole and as a stream, and all of them are
asked for without a cache and again of the router's cache. `pytest tests/matrix` runs them, and
fails where one is not what stands here.

Over a WebSocket every answer is streamed: *whole* there is the response at the end of the stream.

The kinds of endpoints are those of `endpoints[].dialect`. *responses only* is one of the dialect
`responses` that has `/v1/responses` and nothing beside it.

- **yes**: it works.
- **ignored**: the request is served without it, and the header `X-Pointsman-Dropped-Parameters`
  names the field; with `server.unsupported: strict` it is refused with 400 `unsupported_parameter`.
- **passed on**: the API has no such field. What is sent goes to the endpoint as it is, which may
  understand it.
- **counted**: the model reasons, and the usage tells how much, but not what.
- **estimated**: the endpoint cannot count; the header `X-Pointsman-Estimated` says so.
- **not told**: the API has no place for it in its answers.
- **none**: an endpoint of this kind cites no documents.
- **no**: it is refused, with the error below the table.
"""


class _Notes:
    """The errors of a table, each with its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def shown(self, outcome: str) -> str:
        """A cell."""
        if error := _ERROR.fullmatch(outcome):
            said = _MODEL.sub("model '…'", error[3])
            number = self._numbers.setdefault(said, len(self._numbers) + 1)
            code = f" `{error[2]}`" if error[2] else ""
            return f"no: {error[1]}{code} ({number})"
        kind, _, names = outcome.partition(": ")
        return f"{kind}: `{names}`" if names else kind

    def lines(self) -> list[str]:
        """The list below the table; the test's names of models stand for any."""
        found = [f"{number}. {said}" for said, number in self._numbers.items()]
        return ["", *found] if found else []


def document() -> str:
    """The whole of it."""
    surfaces = {f"{surface} `{path}`": surface for surface, path in PATHS.items()}
    parts = [_HEAD, "## Answers\n", _table("API", surfaces, FEATURES)]
    for title, table in OTHERS.items():
        features = next(iter(table.values()))
        paths = {f"`{path}`": path for path in table}
        parts += [f"## {title}\n", _table("path", paths, features)]
    return "\n".join(parts)


def _table(title: str, surfaces: Mapping[str, str], features: Iterable[str]) -> str:
    notes = _Notes()
    lines = [_row([title, "endpoint", *features])]
    lines.append("|---" * (2 + len(list(features))) + "|")
    for shown, surface in surfaces.items():
        for column in COLUMNS:
            outcomes = [expected(surface, feature, column) for feature in features]
            lines.append(_row([shown, column, *map(notes.shown, outcomes)]))
    return "\n".join([*lines, *notes.lines()]) + "\n"


def _row(entries: Iterable[str]) -> str:
    return f"| {' | '.join(entries)} |"
