"""Every cell of SURFACES.md, run; and the document, compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix import make
from tests.matrix.asking import Ask
from tests.matrix.cases import FEATURES
from tests.matrix.document import document
from tests.matrix.expected import cells, expected
from tests.matrix.make import main, stale
from tests.matrix.running import tried, wrong
from tests.matrix.said import Said
from tests.matrix.stand import COLUMNS, Stand, standing

HOW = "run python -m tests.matrix.make"


@pytest.mark.parametrize("cached", [False, True], ids=["", "cached"])
@pytest.mark.parametrize("column", COLUMNS)
async def test_every_cell_is_what_is_written(column: str, cached: bool) -> None:
    found = await wrong(column, cached=cached)
    assert not found, "\n".join(["see tests/matrix/expected.py", *found])


def test_the_document_is_up_to_date() -> None:
    assert not stale(), HOW


async def test_in_strict_mode_what_would_be_ignored_is_refused_by_name() -> None:
    async with standing("chat", server={"unsupported": "strict"}) as stand:
        refused = 0
        for surface, feature in cells():
            kind, _, name = expected(surface, feature, "chat").partition(": ")
            if kind != "ignored":
                continue
            found = await tried(stand, surface, feature)
            assert found.startswith("400"), (surface, feature, found)
            assert f"Unsupported parameter: '{name}'" in found
            refused += 1
    assert refused > 4
    assert not stand.received


async def test_a_cell_that_is_lost_is_named(monkeypatch: pytest.MonkeyPatch) -> None:

    async def nothing(stand: Stand, surface: str, said: Said) -> str:
        raise AssertionError("two calls were one")

    monkeypatch.setitem(FEATURES, "parallel tools", (Ask("?", tools=True), nothing))
    found = await wrong("responses")
    assert found
    assert all(", parallel tools, towards responses: 'fails: " in one for one in found)
    assert "two calls were one" in found[0]


def test_nothing_is_written_while_a_cell_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ["a cell"]

    async def failing(column: str, *, cached: bool) -> list[str]:
        return found

    monkeypatch.setattr(make, "wrong", failing)
    monkeypatch.setattr(make, "PATH", path := tmp_path / "SURFACES.md")
    assert main([]) == 1
    assert "a cell" in capsys.readouterr().err
    assert not path.exists()
    found.clear()
    assert main(["--check"]) == 1
    assert not path.exists()
    assert main([]) == 0
    assert path.read_text(encoding="utf-8") == document()
    assert main(["--check"]) == 0
