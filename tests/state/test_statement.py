"""SQL that is written once."""

from __future__ import annotations

import sqlite3

import pytest

from router.state.statement import Statement


def test_parameters_by_order_of_first_use() -> None:
    statement = Statement("SELECT CAST(:b AS {int}), :a, :b, x::text, '12:30' FROM t")
    assert statement.names == ("b", "a")
    assert statement.sqlite == "SELECT CAST(? AS INTEGER), ?, ?, x::text, '12:30' FROM t"
    assert statement.postgresql == "SELECT CAST($1 AS BIGINT), $2, $1, x::text, '12:30' FROM t"
    assert statement.values({"a": 1, "b": 2, "c": 3}) == (2, 1)
    assert statement.sqlite_values({"a": 1, "b": 2, "c": 3}) == (2, 1, 2)
    for values in (statement.values, statement.sqlite_values):
        with pytest.raises(KeyError):
            values({"a": 1})


PLAIN = [
    ("INSERT INTO t (a, b) VALUES (:a, :b)", "INSERT INTO t (a, b) VALUES (?, ?), (?, ?)"),
    (
        "\n  insert into t\n  values (:b, (:a), :b) ON CONFLICT (a) DO NOTHING",
        "\n  insert into t\n  values (?, (?), ?), (?, (?), ?) ON CONFLICT (a) DO NOTHING",
    ),
    (
        "INSERT INTO t (a) VALUES (CAST(:a AS {int}) + 1)",
        "INSERT INTO t (a) VALUES (CAST(? AS INTEGER) + 1), (CAST(? AS INTEGER) + 1)",
    ),
]


@pytest.mark.parametrize(("text", "two"), PLAIN)
def test_rows_of_a_plain_insert(text: str, two: str) -> None:
    statement = Statement(text)
    assert statement.plain
    assert statement.sqlite_rows(2) == two
    assert statement.sqlite_rows(1) == statement.sqlite


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE t SET a = :a",
        "DELETE FROM t WHERE a IN (VALUES (:a))",
        "SELECT 'INSERT INTO t VALUES (:a)'",
        "INSERT INTO t (a) SELECT :a",
        "INSERT INTO t (a) SELECT b FROM u WHERE c IN (VALUES (:a))",
        "INSERT INTO t (a) VALUES ((SELECT max(a) + 1 FROM t))",
        "INSERT INTO t (a) VALUES (:a) ON CONFLICT (a) DO UPDATE SET a = :a",
        "INSERT INTO t (a) SELECT :b FROM (VALUES (:a))",
    ],
)
def test_what_is_not_plain(text: str) -> None:
    assert not Statement(text).plain


def test_many_rows_are_those_rows() -> None:
    statement = Statement("INSERT INTO t (a, b, c) VALUES (:x, {now}, :y)")
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE TABLE t (a, b, c)")
        values = list(range(128))
        connection.execute(statement.sqlite_rows(64), values)
        rows = connection.execute("SELECT a, c FROM t ORDER BY a").fetchall()
    finally:
        connection.close()
    assert rows == [(n, n + 1) for n in range(0, 128, 2)]
