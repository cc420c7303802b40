"""What ``state check`` finds: everything that is broken, nothing that is not, and no change."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator
from itertools import chain
from pathlib import Path

import pytest
import pytest_asyncio

from router.response.frame import Frame
from router.state.conversations import ConversationStore
from router.state.database import StateError
from router.state.maintenance import access
from router.state.maintenance.access import Damaged, is_current, shown_url
from router.state.maintenance.check import _ORPHANS, CheckReport, check, glance
from router.state.prompts import PromptStore
from router.state.responses import ResponseStore
from router.state.runs import RunStore
from router.state.schema import SCHEMA_VERSION, VERSIONS
from router.state.statement import Row, Statement, StatementStep
from tests.support.damage import executed
from tests.support.state import database_url, opened, postgresql_url, state_settings
from tests.support.stored import alive, message, stored
from tests.support.usage import recorded, row

__all__ = ["database_url"]

ADD_KEY = Statement(
    """
    INSERT INTO virtual_keys (name, digest, hint, created_at, changed_at, revoked_at, spec)
    VALUES (:name, :digest, '', 1.0, 1.0, CAST(:revoked_at AS {real}), :spec)
    """
)


def events(first: int, last: int) -> bytes:
    frames = [Frame.of({"type": "e", "sequence_number": n}) for n in range(first, last + 1)]
    return b"".join(frame.encode() for frame in frames)


@pytest_asyncio.fixture
async def filled(database_url: str) -> AsyncIterator[str]:
    """A sound database with some of everything."""
    async with opened(database_url) as database:
        responses, runs = ResponseStore(database), RunStore(database)
        for ident, owner in (("resp_a", "ann"), ("resp_b", "bob")):
            given, made = [message(f"msg_{ident}")], [message(f"out_{ident}", role="assistant")]
            whole = stored(ident, owner=owner, given=given, output=made, created_at=5000)
            await database.write(*responses.added(whole))
        for ident, holder in (("resp_run", "router_gone"), ("resp_live", "router_here")):
            begun = stored(ident, status="in_progress", resumable=True, background=True)
            added = runs.added(ident, "ann", None, b"{}", events(0, 1), 2)
            await database.write(*responses.added(begun), *added)
            await database.write(*runs.claimed(ident, 0, holder))
        over = stored("resp_over", resumable=True, background=True)
        await database.write(
            *responses.added(over),
            *runs.added("resp_over", "ann", None, b"{}", events(0, 1), 2, "router_here"),
        )
        await database.write(*runs.finished("resp_over", 0, 1, events(2, 2)))
        await database.write(*responses.added(stored("resp_gone")))
        await responses.delete("ann", "resp_gone")
        conversations = ConversationStore(database)
        await conversations.create("ann", "conv_a", 1.0, {}, [message("msg_1"), message("msg_2")])
        await conversations.create("ann", "conv_gone", 1.0, {}, [message("msg_3")])
        await conversations.delete("ann", "conv_gone")
        await PromptStore(database).create("ann", "pmpt_a", "hello", 1.0, b'{"name": "hello"}')
        await alive(database, "router_here")
        await recorded(database, row("att_a"), row("att_b", cost=None))
        keys: list[Row] = [
            {"name": "key_a", "digest": b"a", "revoked_at": None, "spec": b"{}"},
            {"name": "key_gone", "digest": b"b", "revoked_at": 2.0, "spec": b"{}"},
        ]
        await database.write(StatementStep(ADD_KEY, keys))
    yield database_url


def found(report: CheckReport) -> dict[str, tuple[int, list[str]]]:
    return {p.what: (p.count, p.examples) for p in report.problems}


async def test_what_is_sound_is_counted(filled: str) -> None:
    report = await check(state_settings(filled))
    assert found(report) == {}
    assert report.version == SCHEMA_VERSION
    assert report.size > 0
    assert report.oldest == 1000
    assert report.counts == {
        "responses": 5,
        "conversations": 1,
        "items": 2,
        "prompts": 1,
        "runs_queued": 0,
        "runs_running": 2,
        "runs_ending": 0,
        "runs_over": 1,
        "abandoned_runs": 1,
        "events": 7,
        "routers": 1,
        "usage": 2,
        "keys": 1,
    }


@pytest.mark.parametrize(
    ("sql", "what", "places"),
    [
        (
            "UPDATE responses SET status = 'in_progress' WHERE id = 'resp_over'",
            "runs that are over, and their responses unfinished",
            ["resp_over"],
        ),
        (
            "UPDATE responses SET status = 'completed' WHERE id = 'resp_run'",
            "runs that are not over, and their responses finished",
            ["resp_run"],
        ),
        (
            "UPDATE responses SET status = 'queued' WHERE id = 'resp_a'",
            "unfinished responses that no run will finish",
            ["resp_a"],
        ),
        (
            "UPDATE events SET first = 3, last = 3 WHERE response = 'resp_over' AND first = 2",
            "event logs with gaps or overlaps",
            ["resp_over"],
        ),
        (
            "UPDATE events SET first = 1 WHERE response = 'resp_over' AND first = 2",
            "event logs with gaps or overlaps",
            ["resp_over"],
        ),
        (
            "DELETE FROM events WHERE response = 'resp_over' AND first = 0",
            "event logs with gaps or overlaps",
            ["resp_over"],
        ),
        (
            "DELETE FROM events WHERE response = 'resp_over' AND first = 2",
            "event logs that end elsewhere than their runs",
            ["resp_over"],
        ),
        (
            "DELETE FROM events WHERE response = 'resp_run'",
            "event logs that end elsewhere than their runs",
            ["resp_run"],
        ),
        (
            "UPDATE events SET data = CAST('' AS {blob}) WHERE response = 'resp_run'",
            "rows of event logs that hold other events than they say",
            ["resp_run 0"],
        ),
        (
            "DELETE FROM conversations WHERE id = 'conv_a'",
            "conversation items of missing conversations",
            ["conv_a", "conv_a"],
        ),
        (
            "UPDATE conversations SET next_position = 1 WHERE id = 'conv_a'",
            "conversations whose next item would replace one",
            ["conv_a"],
        ),
        (
            "UPDATE prompts SET latest = 2 WHERE id = 'pmpt_a'",
            "prompts without their latest version",
            ["pmpt_a"],
        ),
        ("DELETE FROM prompts", "versions of missing prompts", ["pmpt_a"]),
        (
            "UPDATE usage SET cost = -1 WHERE id = 'att_a'",
            "rows of usage that no attempt can have",
            ["att_a"],
        ),
        (
            "DELETE FROM responses WHERE id = 'resp_a'",
            "items of missing responses",
            ["resp_a", "resp_a"],
        ),
        ("DELETE FROM responses WHERE id = 'resp_run'", "runs of missing responses", ["resp_run"]),
        (
            "DELETE FROM runs WHERE id = 'resp_run'",
            "requests of missing runs",
            ["resp_run"],
        ),
    ],
)
async def test_what_contradicts_itself_is_named(
    filled: str, sql: str, what: str, places: list[str]
) -> None:
    await executed(filled, sql)
    report = await check(state_settings(filled))
    assert found(report)[what] == (len(places), places)


@pytest.mark.parametrize("value", ["", "{", "\\xff", "[1]", "{}", "7", "null"])
@pytest.mark.parametrize(
    ("table", "column", "what", "kind"),
    [
        ("responses", "body", "responses whose JSON is broken", "{}"),
        ("responses", "input", "responses whose JSON is broken", "[1]"),
        ("responses", "output", "responses whose JSON is broken", "[1]"),
        ("responses", "hidden", "responses whose JSON is broken", "{}"),
        ("conversations", "metadata", "conversations whose JSON is broken", "{}"),
        ("conversation_items", "data", "conversation items whose JSON is broken", "{}"),
        ("prompt_versions", "body", "versions of prompts whose JSON is broken", "{}"),
        ("run_requests", "data", "requests of runs whose JSON is broken", "{}"),
        ("virtual_keys", "spec", "virtual keys whose JSON is broken", "{}"),
    ],
)
async def test_json_of_another_kind_is_named(
    tmp_path: Path, table: str, column: str, what: str, kind: str, value: str
) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    async with opened(url) as database:
        responses, runs = ResponseStore(database), RunStore(database)
        await database.write(
            *responses.added(stored("resp_a", status="queued", background=True, resumable=True)),
            *runs.added("resp_a", "ann", None, b"{}", b"", 0),
        )
        await ConversationStore(database).create("ann", "conv_a", 1.0, {}, [message("msg_1")])
        await PromptStore(database).create("ann", "pmpt_a", "hello", 1.0, b"{}")
        key: Row = {"name": "key_a", "digest": b"a", "revoked_at": None, "spec": b"{}"}
        await database.write(StatementStep(ADD_KEY, [key]))
    await executed(url, f"UPDATE {table} SET {column} = CAST('{value}' AS {{blob}})")
    count = found(await check(state_settings(url))).get(what, (0, []))[0]
    assert count == (0 if value == kind else 1)


async def test_broken_json_in_postgresql_is_named() -> None:
    async with postgresql_url() as url:
        async with opened(url) as database:
            for number in range(30):
                await database.write(*ResponseStore(database).added(stored(f"resp_{number:02}")))
        await executed(url, "UPDATE responses SET output = '\\x5b' WHERE id > 'resp_09'")
        report = await check(state_settings(url))
    ((count, examples),) = found(report).values()
    assert count == 20
    assert len(examples) == 5


def test_every_reference_between_tables_is_checked() -> None:
    connection = sqlite3.connect(":memory:")
    try:
        for statement in chain.from_iterable(VERSIONS):
            words = {"{int}": "INTEGER", "{real}": "REAL", "{blob}": "BLOB", "{keyed}": ""}
            for word, meaning in words.items():
                statement = statement.replace(word, meaning)
            connection.execute(statement)
        tables = [
            row[0]
            for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        references = {
            (table, row[3], row[2])
            for table in tables
            for row in connection.execute(f"PRAGMA foreign_key_list({table})")
        }
    finally:
        connection.close()
    assert {(table, column, parent) for _, table, column, parent in _ORPHANS} == references


async def test_places_are_shown_as_a_terminal_bears_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    async with opened(url) as database:
        await database.write(*ResponseStore(database).added(stored("resp_a")))
    await executed(url, "UPDATE responses SET id = 'a' || char(27) || '[31m', body = x'7b'")
    examples = [
        text for _, texts in found(await check(state_settings(url))).values() for text in texts
    ]
    assert "a?[31m" in examples
    assert all(text.isprintable() for text in examples)


async def test_nothing_is_made_or_changed(database_url: str, tmp_path: Path) -> None:
    settings = state_settings(database_url)
    report = await check(settings)
    assert (report.version, report.counts, report.problems) == (0, {}, [])
    assert "at the first start" in await glance(settings)
    assert not await is_current(settings)
    assert os.listdir(tmp_path) == []
    assert (await check(settings)).version == 0


async def test_a_write_ahead_log_is_read_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with opened(f"sqlite:///{path}") as database:
        await database.write(*ResponseStore(database).added(stored("resp_a")))
        log = tmp_path / "state.db-wal"
        before = path.read_bytes(), log.read_bytes()
        assert before[1]
        report = await check(state_settings(f"sqlite:///{path}"))
        assert report.counts["responses"] == 1
        assert report.size == len(before[0]) + len(before[1])
        assert (path.read_bytes(), log.read_bytes()) == before


async def test_a_schema_that_is_newer_is_refused(database_url: str) -> None:
    async with opened(database_url):
        pass
    await executed(database_url, f"UPDATE pointsman_schema SET version = {SCHEMA_VERSION + 1}")
    settings = state_settings(database_url)
    for refused in (check(settings), glance(settings), is_current(settings)):
        with pytest.raises(StateError, match=f"schema version {SCHEMA_VERSION + 1}.*upgrade"):
            await refused


async def test_a_schema_that_is_older_is_only_told(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(database_url):
        pass
    newer = SCHEMA_VERSION + 1
    monkeypatch.setattr("router.state.maintenance.check.SCHEMA_VERSION", newer)
    monkeypatch.setattr(access, "SCHEMA_VERSION", newer)
    settings = state_settings(database_url)
    report = await check(settings)
    assert (report.version, report.counts, report.problems) == (SCHEMA_VERSION, {}, [])
    assert f"{newer} after the next start" in await glance(settings)
    with pytest.raises(StateError, match="brings it up to date"):
        await is_current(settings)


async def test_a_file_that_is_cut_off_anywhere_is_no_surprise(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with opened(f"sqlite:///{path}") as database:
        for number in range(40):
            big = [message(f"msg_{number}", "x" * 8000)]
            await database.write(
                *ResponseStore(database).added(stored(f"resp_{number}", given=big))
            )
    whole = path.read_bytes()
    settings = state_settings(f"sqlite:///{path}")
    named = 0
    for size in (1024, 4096, 5000, *range(8192, len(whole), len(whole) // 9)):
        path.write_bytes(whole[:size])
        with contextlib.suppress(StateError):  # where not even a database is left
            report = await check(settings)
            assert report.problems, size
            assert all("damaged" in problem.what for problem in report.problems)
            named += 1
    assert named >= 5
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Damaged, match="recover"):
        await is_current(settings)


@pytest.mark.parametrize("content", [b"not a database at all, " * 300, os.urandom(8192)])
async def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)
    with pytest.raises(StateError, match="not a database"):
        await check(state_settings(f"sqlite:///{path}"))
    assert path.read_bytes() == content


async def test_where_there_can_be_no_database(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="directory is not there"):
        await check(state_settings(f"sqlite:///{tmp_path}/none/state.db"))
    with pytest.raises(StateError, match="memory"):
        await check(state_settings("sqlite:///:memory:"))
    async with asyncio.timeout(60):
        with pytest.raises(StateError, match="PostgreSQL"):
            await check(state_settings("postgresql://me:secret@127.0.0.1:1/none"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///pointsman.db", "sqlite:///pointsman.db"),
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgresql://me:secret@h:5432/d", "postgresql://me@h:5432/d"),
        ("postgresql://me:se%2Fcret@[::1]:5432/d", "postgresql://me@[::1]:5432/d"),
        ("postgresql://me:sec@ret@a:1,b:2/d", "postgresql://me@a:1,b:2/d"),
        ("postgresql:///d?host=/run&password=secret", "postgresql:///d"),
        ("postgresql://me:sec/ret@h/d", "postgresql://..."),
        ("postgresql://me:secret?x@h/d", "postgresql://..."),
        ("postgres://me:secret#x@h/d", "postgres://..."),
        ("postgresql://me:secret", "postgresql://..."),
        ("postgresql://me:[secret@h/d", "postgresql://..."),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert shown_url(state_settings(url)) == shown
