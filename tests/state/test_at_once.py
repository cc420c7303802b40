"""Jobs of a few inserts, which PostgreSQL gets as one statement, and jobs of many."""

from __future__ import annotations

from typing import Final

import pytest

from router.state.database import Database, WriteRefused
from router.state.statement import Row, Statement, StatementStep

_PROMPT: Final = Statement(
    """
    INSERT INTO prompts (id, owner, name, created_at, latest)
    VALUES (:id, 'o', :id, {now}, 1) ON CONFLICT (id) DO NOTHING
    """
)
_VERSION: Final = Statement(
    """
    INSERT INTO prompt_versions (prompt, version, created_at, body)
    VALUES (:prompt, :version, 1, :body) ON CONFLICT (prompt, version) DO NOTHING
    """
)
_VERSIONS: Final = Statement(
    "SELECT version, body FROM prompt_versions WHERE prompt = :id ORDER BY version"
)
_PROMPTS: Final = Statement("SELECT COUNT(*), MIN(created_at) FROM prompts")


def _job(versions: int) -> tuple[StatementStep, StatementStep]:
    rows: list[Row] = [{"prompt": "a", "version": n, "body": b"%d" % n} for n in range(versions)]
    return StatementStep(_PROMPT, ({"id": "a"},)), StatementStep(_VERSION, rows)


@pytest.mark.parametrize("versions", [0, 1, 2, 14, 15, 16, 17, 200])
async def test_a_job_of_any_size_writes_all_of_its_rows_once(
    database: Database, versions: int
) -> None:
    for _ in range(2):
        assert await database.write(*_job(versions))
        rows = await database.read(_VERSIONS, id="a")
        assert [(n, bytes(body)) for n, body in rows] == [(n, b"%d" % n) for n in range(versions)]
    [(count, created_at)] = await database.read(_PROMPTS)
    assert count == 1
    assert created_at > 1_600_000_000


@pytest.mark.parametrize("versions", [1, 15, 16])
async def test_a_row_that_refers_to_nothing_takes_its_whole_job_along(
    database: Database, versions: int
) -> None:
    prompt, _ = _job(versions)
    rows: list[Row] = [
        {"prompt": "a" if n else "nothing", "version": n, "body": b"x"} for n in range(versions)
    ]
    with pytest.raises(WriteRefused):
        await database.write(prompt, StatementStep(_VERSION, rows))
    assert (await database.read(_PROMPTS))[0][0] == 0
    assert await database.read(_VERSIONS, id="a") == []
    assert await database.write(*_job(versions))
