"""SQL that is written once for both databases.

Parameters are ``:name``. Where the databases differ a word in braces stands for what they say:

    {now}    the database's time, in seconds since 1970, with fractions
    {blob}   the type of bytes       {real}  of a double       {int}  of 64 bits
    {keyed}  after a CREATE TABLE whose rows are found by their primary key only

Everything else has to be SQL that both understand. A parameter whose type PostgreSQL could not
infer is cast where it stands: ``CAST(:after AS BIGINT)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Final, Literal

__all__ = [
    "Dialect", "Row", "Statement", "StatementStep", "Value", "Values", "postgresql_at_once",
]  # fmt: skip

Dialect = Literal["sqlite", "postgresql"]
Value = str | bytes | int | float | None
Row = Mapping[str, Value]
Values = tuple[Value, ...]
"""A row without names: its values in the order of the statement's ``names``, of which each is used
once.
"""


_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_VALUES: Final = re.compile(r"\s*INSERT\s[^:]*?\bVALUES\s*\(", re.IGNORECASE)
_WORDS: Final[Mapping[Dialect, Mapping[str, str]]] = {
    "sqlite": {
        "{now}": "((julianday('now') - 2440587.5) * 86400.0)",
        "{blob}": "BLOB",
        "{real}": "REAL",
        "{int}": "INTEGER",
        "{keyed}": "WITHOUT ROWID",
    },
    "postgresql": {
        "{now}": "CAST(extract(epoch from clock_timestamp()) AS DOUBLE PRECISION)",
        "{blob}": "BYTEA",
        "{real}": "DOUBLE PRECISION",
        "{int}": "BIGINT",
        "{keyed}": "",
    },
}


class Statement:
    """One SQL statement; ``names`` are its parameters in the order of their first use. ``plain``:
    it is ``INSERT ... VALUES (...)``, and no row of it looks at others.

    PostgreSQL's are numbered. SQLite's are not: Python 3.12 takes a number for a name.
    """

    __slots__ = (
        "_parts", "_places", "_repeated", "_sqlite_values", "_values", "names", "plain",
        "postgresql", "sqlite",
    )  # fmt: skip

    def __init__(self, text: str) -> None:
        self._places = tuple(_PARAMETER.findall(text))
        self.names = tuple(dict.fromkeys(self._places))
        self._values = _getter(self.names)
        self._sqlite_values = _getter(self._places)
        number = {name: str(index) for index, name in enumerate(self.names, 1)}
        self.sqlite = _in_words(_PARAMETER.sub("?", text), "sqlite")
        self.postgresql = _in_words(
            _PARAMETER.sub(lambda m: "$" + number[m[1]], text), "postgresql"
        )
        self._parts = _around_values(text)
        self.plain = self._parts is not None
        self._repeated: dict[int, str] = {}

    def sqlite_rows(self, count: int) -> str:
        """The SQL of a plain statement for ``count`` rows, whose values follow one another."""
        text = self._repeated.get(count)
        if text is None:
            assert self._parts is not None
            head, row, tail = self._parts
            rows = ", ".join([_PARAMETER.sub("?", row)] * count)
            text = self._repeated[count] = _in_words(head + rows + tail, "sqlite")
        return text

    def values(self, row: Row | Values) -> Values:
        """PostgreSQL's parameters in order; raises KeyError for one that is missing."""
        return row if isinstance(row, tuple) else self._values(row)

    def sqlite_values(self, row: Row | Values) -> Values:
        """SQLite's parameters in order, each as often as it is used; raises KeyError."""
        return row if isinstance(row, tuple) else self._sqlite_values(row)

    def postgresql_rows(self, count: int, before: int) -> str:
        """The SQL of a plain statement for ``count`` rows, whose values come after ``before``
        others.
        """
        assert self._parts is not None
        head, row, tail = self._parts
        width = len(self.names)
        rows = [self._numbered(row, before + width * index) for index in range(count)]
        return head + ", ".join(rows) + tail

    def _numbered(self, row: str, before: int) -> str:
        number = {name: before + index for index, name in enumerate(self.names, 1)}
        return _PARAMETER.sub(lambda m: f"${number[m[1]]}", row)

    def __repr__(self) -> str:
        return f"Statement({' '.join(self.sqlite.split())[:80]!r})"


@dataclass(frozen=True, slots=True)
class StatementStep:
    """A statement and the rows it is run with, in order.

    ``guard``: the whole job is refused, and nothing of it written, unless each row of this step
    changes at least one row of the database. Its statement begins with INSERT, UPDATE or DELETE.
    ``size`` of the rows is in bytes; it is counted where it is not given.
    """

    statement: Statement
    rows: Sequence[Row | Values]
    guard: bool = False
    size: int | None = None

    @property
    def bytes(self) -> int:
        """About how much memory its texts and bytes take."""
        if self.size is not None:
            return self.size
        size = 0
        for row in self.rows:
            for value in row if isinstance(row, tuple) else row.values():
                if isinstance(value, (bytes, str)):
                    size += len(value)
        return size


@lru_cache(maxsize=256)
def postgresql_at_once(inserts: tuple[tuple[Statement, int], ...]) -> str:
    """One statement that does what these plain ones do, each with so many rows (at least one).

    The values follow one another. References between the rows are checked when all are there.
    """
    texts = []
    before = 0
    for statement, count in inserts:
        texts.append(statement.postgresql_rows(count, before))
        before += count * len(statement.names)
    *firsts, last = texts
    named = ", ".join([f"step{index} AS ({text})" for index, text in enumerate(firsts)])
    return _in_words(f"WITH {named} {last}" if named else last, "postgresql")


def _getter(names: Sequence[str]) -> Callable[[Row], tuple[Value, ...]]:
    """What gets these of a row; raises KeyError."""
    if len(names) > 1:
        return itemgetter(*names)  # one call for all of them
    return lambda row: tuple([row[name] for name in names])


def _around_values(text: str) -> tuple[str, str, str] | None:
    """What is before, in and after the parentheses of ``VALUES (...)`` in a plain INSERT."""
    found = _VALUES.match(text)
    if found is None:
        return None
    start = end = found.end() - 1
    depth = 0
    for end in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            break
    head, row, tail = text[:start], text[start : end + 1], text[end + 1 :]
    # Rows that look at the table could see one another, or not.
    by_themselves = not _PARAMETER.search(head + tail) and "SELECT" not in (head + row).upper()
    return (head, row, tail) if by_themselves else None


def _in_words(text: str, dialect: Dialect) -> str:
    for word, meaning in _WORDS[dialect].items():
        text = text.replace(word, meaning)
    return text
