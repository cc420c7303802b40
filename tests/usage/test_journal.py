"""The journal: what was appended is read again, whoever reads it and whatever went wrong."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from router.core.usage_record import UsageRecord
from router.settings.accounts import AccountsSettings
from router.state.usage import COLUMNS
from router.usage import journal as journal_module
from router.usage.accounting import journal_directory
from router.usage.journal import Journal
from router.usage.segment import created, decoded, read
from tests.support.state import state_settings
from tests.support.usage import row


async def drained(journal: Journal) -> list[str]:
    """The ids of all rows that wait; they are done then."""
    found: list[str] = []
    await journal.adopt()
    while (taken := await journal.take()) is not None:
        found += [str(one[0]) for one in taken.batch.records]
        journal.done(taken)
        await journal.adopt()
    return found


def left_behind(directory: Path, content: bytes, name: str = "usage-1-0123456789ab") -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}.journal"
    path.write_bytes(content)
    return path


def encoded(record: UsageRecord) -> bytes:
    """The line that is written for it."""
    journal = Journal(None)
    journal.append(record)
    [line] = journal._memory
    return line


def held(directory: Path) -> int:
    """Bytes in its files."""
    return sum(entry.stat().st_size for entry in os.scandir(directory))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def test_a_row_comes_back_as_it_was() -> None:
    for one in (
        row(tags=("b", "a")),
        row(cost=None, first_token=None, error="naïve \u2028\n", response=None, stream=False),
    ):
        line = encoded(one)
        assert line.count(b"\n") == 1
        assert decoded(line[:-1]) == one.values()
    assert decoded(encoded(row(tags=("b", "a"))))[COLUMNS.index("tags")] == ",a,b,"


def test_texts_without_end_are_clipped() -> None:
    line = encoded(row(model="m" * 100_000, error="\0" * 9000))
    found = dict(zip(COLUMNS, decoded(line), strict=True))
    assert found["model"] == "m" * 256
    assert found["error"] == "\ufffd" * 256
    assert found["id"] != ""


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"[1]", b"[2,3]", b"\0\0", b"\xff", b"7"])
def test_what_is_no_row_is_told(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (whatever it says)
        decoded(line)


async def test_rows_are_read_in_order_and_gone_when_done(directory: Path) -> None:
    journal = Journal(directory)
    rows = [row() for _ in range(2500)]
    for one in rows:
        journal.append(one)
    assert journal.waiting == 2500
    assert await drained(journal) == [one.id for one in rows]
    assert journal.waiting == 0
    assert journal.size == 0  # emptied, since it was worth it
    journal.append(rows[0])
    assert await drained(journal) == [rows[0].id]
    journal.close()
    assert os.listdir(directory) == []
    assert not journal.lost


def test_only_its_owner_can_read_it(directory: Path) -> None:
    journal = Journal(directory)
    journal.append(row())
    [path] = directory.iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    journal.close()


async def test_what_is_not_done_is_read_again(directory: Path) -> None:
    journal = Journal(directory)
    journal.append(row("a"))
    first, second = await journal.take(), await journal.take()
    assert first is not None
    assert second is not None
    assert first.batch == second.batch
    assert journal.waiting == 1
    journal.close()
    other = Journal(directory)
    assert await drained(other) == ["a"]
    assert os.listdir(directory) == []
    other.close()


async def test_a_full_segment_is_followed_by_another(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_SEGMENT", 2000)
    journal = Journal(directory)
    rows = [row() for _ in range(60)]
    for one in rows[:50]:
        journal.append(one)
    assert len(os.listdir(directory)) > 3
    taken = await journal.take()
    assert taken is not None
    journal.done(taken)
    for one in rows[50:]:
        journal.append(one)
    found = [str(one[0]) for one in taken.batch.records] + await drained(journal)
    assert found == [one.id for one in rows]
    journal.close()
    assert os.listdir(directory) == []


async def test_two_in_one_directory_leave_each_other_alone(directory: Path) -> None:
    one, other = Journal(directory), Journal(directory)
    one.append(row("one"))
    other.append(row("other"))
    assert await drained(one) == ["one"]
    assert one.size > other.size / 2  # the other's count as well
    assert await drained(other) == ["other"]
    one.append(row("late"))
    one.close()
    assert await drained(other) == ["one", "late"]  # that the database has one does not matter
    other.close()
    assert os.listdir(directory) == []


async def test_many_look_for_what_was_left_at_once(directory: Path) -> None:
    names = [f"usage-{n}-0123456789ab" for n in range(1, 21)]
    for name in names:
        left_behind(directory, encoded(row(name)), name)
    journals = [Journal(directory) for _ in range(5)]
    found = await asyncio.gather(*[drained(journal) for journal in journals])
    assert sorted(ident for some in found for ident in some) == sorted(names)
    assert os.listdir(directory) == []


@pytest.mark.parametrize("cut", range(1, 120, 7))
async def test_a_torn_end_is_skipped(directory: Path, cut: int) -> None:
    left_behind(directory, encoded(row("a")) + encoded(row("b"))[:-cut])
    journal = Journal(directory)
    assert await drained(journal) == ["a"]
    assert journal.lost == {"unreadable": 1}
    assert os.listdir(directory) == []


@pytest.mark.parametrize("bad", [b"\n", b"\0" * 500 + b"\n", b"[9,1]\n", b"\xff" * 300_000 + b"\n"])
async def test_damage_in_the_middle_is_skipped_and_kept(directory: Path, bad: bytes) -> None:
    path = left_behind(directory, encoded(row("a")) + bad + encoded(row("b")))
    journal = Journal(directory)
    assert await drained(journal) == ["a", "b"]
    assert journal.lost["unreadable"] >= 1
    assert os.listdir(directory) == [path.with_suffix(".kept").name]


OLD = orjson.dumps((1, *row("old").values()[:-3]), option=orjson.OPT_APPEND_NEWLINE)
CUT = encoded(row("cut")).index(b'"m"')
LINES = {
    encoded(row("a")): "a",
    encoded(row("zero", model="m\0")): "zero",
    OLD: "old",
    b"\n": None,
    b"{}\n": None,
    b"[2]\n": None,
    b"[9,1]\n": None,
    b"[2,\n": None,
    b"3]\n": None,
    encoded(row("cut"))[:CUT] + b"\n": None,
    encoded(row("cut"))[CUT:]: None,
}


@given(st.lists(st.sampled_from(sorted(LINES)), min_size=1, max_size=6))
def test_whatever_stands_beside_a_row_it_is_read(lines: list[bytes]) -> None:
    with TemporaryDirectory() as name:
        segment = created(Path(name))
        os.write(segment.fd, b"".join(lines))
        batch = read(segment, sum(map(len, lines)))
        segment.close()
    idents = [ident for line in lines if (ident := LINES[line]) is not None]
    assert [one[0] for one in batch.records] == idents
    assert (batch.lines, batch.broken) == (len(lines), len(lines) - len(idents))


async def test_an_empty_one_and_others_files(directory: Path) -> None:
    left_behind(directory, b"")
    (directory / "notes.txt").write_text("mine")
    left_behind(directory, encoded(row("a")), "usage-2-0123456789ab")
    journal = Journal(directory)
    assert await drained(journal) == ["a"]
    assert os.listdir(directory) == ["notes.txt"]


async def test_nothing_is_made_before_there_is_a_row(directory: Path) -> None:
    journal = Journal(directory)
    assert await drained(journal) == []
    journal.close()
    assert os.listdir(directory.parent) == []


async def test_its_size_is_bounded(directory: Path) -> None:
    left_behind(directory, encoded(row("left")))
    journal = Journal(directory, most_bytes=3000)
    await journal.adopt()
    for _ in range(100):
        journal.append(row())
    assert journal.waiting + journal.lost["full"] == 100
    assert 2500 < journal.size <= 3000
    assert journal.size == held(directory)
    kept = journal.waiting
    assert len(await drained(journal)) == kept + 1
    assert journal.size == held(directory)
    journal.append(row("again"))
    assert journal.size == held(directory)
    assert await drained(journal) == ["again"]
    journal.close()
    assert journal.size == held(directory) == 0


class Disk:
    """``os.write`` of a disk that has ``room`` bytes left."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        some = data[: self.room]
        self.room -= len(some)
        return os.pwrite(fd, some, 0)  # O_APPEND


@pytest.mark.parametrize("room", [0, 1, 100, 250, 700])
async def test_a_full_disk_loses_nothing_for_a_while(
    directory: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    now = 0.0
    disk = Disk(room)
    write = os.write
    monkeypatch.setattr(os, "write", disk.write)
    journal = Journal(directory, clock=lambda: now)
    rows = [row() for _ in range(10)]
    for one in rows[:4]:
        journal.append(one)
    now += 2
    for one in rows[4:8]:
        journal.append(one)
    assert len(os.listdir(directory)) <= 1
    monkeypatch.setattr(os, "write", write)
    now += 2
    for one in rows[8:]:
        journal.append(one)
    assert journal.waiting == 10
    assert sorted(await drained(journal)) == sorted(one.id for one in rows)
    assert not journal.lost
    journal.close()
    assert os.listdir(directory) == []


async def test_memory_is_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "MOST_IN_MEMORY", 300)
    (tmp_path / "journal").write_text("a file where the directory should be")
    journal = Journal(tmp_path / "journal")
    for _ in range(310):
        journal.append(row())
    assert (journal.waiting, journal.lost) == (300, {"memory": 10})
    assert len(await drained(journal)) == 300
    journal.append(row())
    journal.close()
    assert journal.lost == {"memory": 10, "stopped": 1}
    journal.append(row())
    assert journal.lost["stopped"] == 2


async def test_what_is_in_memory_is_saved_at_the_end(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(directory)
    with monkeypatch.context() as full:
        full.setattr(os, "write", Disk(0).write)
        journal.append(row("a"))
    journal.close()
    assert await drained(Journal(directory)) == ["a"]


async def test_without_a_directory_it_is_in_memory() -> None:
    journal = Journal(None)
    journal.append(row("a"))
    assert (journal.waiting, journal.size) == (1, 0)
    assert await drained(journal) == ["a"]
    journal.close()
    assert not journal.lost


async def test_what_no_json_can_hold_is_counted(directory: Path) -> None:
    journal = Journal(directory)
    journal.append(row(model="\ud800"))
    journal.append(row(cost=2**70))
    assert (journal.waiting, journal.lost) == (0, {"unwritable": 2})
    journal.close()


async def test_a_deleted_file_is_followed_by_one_that_outlives_the_process(
    directory: Path,
) -> None:
    with capture_logs() as log:
        now = 0.0
        journal = Journal(directory, clock=lambda: now)
        rows = [row() for _ in range(3)]
        journal.append(rows[0])
        shutil.rmtree(directory)
        now += 1.0  # it does not look for every row
        journal.append(rows[1])
        journal.append(rows[2])
    assert [line["event"] for line in log] == ["a file of the journal was deleted"]
    [name] = os.listdir(directory)
    lines = (directory / name).read_bytes().splitlines()
    assert [decoded(line)[0] for line in lines] == [one.id for one in rows[1:]]
    assert await drained(journal) == [one.id for one in rows]
    journal.close()


def test_the_lines_are_json(directory: Path) -> None:
    journal = Journal(directory)
    journal.append(row("a"))
    [path] = directory.iterdir()
    assert orjson.loads(path.read_bytes())[:2] == [2, "a"]
    journal.close()


def test_lines_of_a_version_without_sessions_are_rows() -> None:
    values = row("a").values()
    line = orjson.dumps((1, *values[:-3]))
    assert decoded(line) == values
    for wrong in ((1, *values), (2, *values[:-3]), (3, *values)):
        with pytest.raises(ValueError, match="no row"):
            decoded(orjson.dumps(wrong))


def test_where_it_is() -> None:
    def place(url: str, journal: str | None = None) -> Path | None:
        accounts = AccountsSettings(journal=journal)
        return journal_directory(accounts, state_settings(url), {"POINTSMAN_DATA_DIR": "/d"})

    assert place("sqlite:///a/b.db") == Path("a/b.db.journal")
    assert place("sqlite:///a/b.db", journal="/j") == Path("/j")
    assert place("sqlite:///:memory:") is None
    one = place("postgresql://me:secret@host/one")
    assert one == place("postgresql://me:other@host/one")
    assert one != place("postgresql://me:secret@host/two")
    assert one is not None
    assert one.parent == Path("/d/journal")
    settings = state_settings("postgresql://host/one")
    home = journal_directory(AccountsSettings(), settings, {})
    assert home is not None
    assert home.is_relative_to(Path.home() / ".local/share/pointsman/journal")
    shared = journal_directory(AccountsSettings(), settings, {"XDG_DATA_HOME": "/x"})
    assert shared is not None
    assert shared.is_relative_to("/x/pointsman/journal")
