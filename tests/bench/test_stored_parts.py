"""The parts of the benchmark that make databases, fill them, and say what storing costs."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import orjson
import pytest

from router.core.response_lifecycle import new_id
from router.state.responses import ResponseStore

from .bodies import get
from .check import Checker
from .databases import Databases, opened, size_mib
from .fill import SHAPE, Fill
from .growth import retrievals
from .report import Figures, judge
from .shapes import Shape
from .stored_report import DATABASES, STORED_GOALS, STORED_ROWS

OWNER = "somebody"
COUNT = 41


@pytest.mark.parametrize("kind", DATABASES)
@pytest.mark.soak
async def test_what_is_filled_is_what_the_router_would_have_stored(
    kind: str, tmp_path: Path
) -> None:
    async with Databases(tmp_path) as databases:
        url = await databases.make(kind, "filled")
        if url is None:
            pytest.skip("no PostgreSQL server answers")
        fill = Fill(COUNT, OWNER, every=5)
        await fill.run(url)
        assert await size_mib(url) > 0
        async with opened(url) as database:
            responses = ResponseStore(database)
            stored = [one async for one in responses.export(OWNER)]
            assert len(stored) == COUNT
            dates = [one.created_at for one in stored]  # in the order of their ids
            assert dates == sorted(dates)
            assert len(fill.picked) == 9
            checker = Checker(own_ids=True)
            for ident, variant in fill.picked:
                one = await responses.get(OWNER, ident)
                assert one is not None
                assert len(ident) == len(new_id("resp_"))
                assert orjson.loads(one.public())["created_at"] == one.created_at
                assert checker.body(one.public(), Shape(SHAPE.deltas, 0, variant)) is None
                chain = await responses.history(OWNER, ident)
                assert chain is not None
                for item in chain.items:
                    assert await responses.find_items(OWNER, [item["id"]]) == {item["id"]: item}
                assert await responses.get("somebody else", ident) is None


async def test_databases_are_gone_with_their_context(tmp_path: Path) -> None:
    async with Databases(tmp_path) as databases:
        first = await databases.make("postgresql", "same")
        if first is None:
            pytest.skip("no PostgreSQL server answers")
        assert first != await databases.make("postgresql", "same")
        async with opened(first):
            pass
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(first)


async def test_without_a_server_there_is_no_database(tmp_path: Path) -> None:
    async with Databases(tmp_path, "postgresql://127.0.0.1:1/postgres") as databases:
        assert await databases.make("postgresql", "none") is None


def test_retrievals_expect_the_text_that_was_stored() -> None:
    [request] = retrievals([("resp_a", 3)], "k")
    assert request.wire == get("/v1/responses/resp_a", "k")
    assert request.shape.text == Shape(SHAPE.deltas, 0, 3).text


def test_every_target_of_storing_is_a_figure_of_the_table() -> None:
    names = {name for _, _, name, _ in STORED_ROWS}
    assert {goal.name for goal in STORED_GOALS} <= names


@pytest.mark.parametrize(
    ("ratio", "met"), [(1.2, [True] * 3), (1.5, [True, True, False]), (2.1, [False] * 3)]
)
def test_the_stops_are_told_apart(ratio: float, met: list[bool]) -> None:
    figures = Figures()
    figures.add("sqlite", 1, {"stored_whole64_x": ratio})
    verdicts = judge(figures, ["sqlite"], STORED_GOALS)
    assert [v.met for v in verdicts if v.goal.name == "stored_whole64_x"] == met
