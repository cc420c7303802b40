"""Where an answer names files that code has made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.tools.code_interpreter.citations import (
    ContainerFileCitation,
    ContainerFileFinder,
    NamedFile,
)

FILES = [
    NamedFile("1", "c", "a.csv"),
    NamedFile("2", "c", "a.csv.gz"),
    NamedFile("3", "c", "d/é.md"),
]


def found(*pieces: str) -> list[ContainerFileCitation]:
    finder = ContainerFileFinder(FILES)
    return [one for piece in pieces for one in finder.feed(piece)] + finder.finish()


def cited(text: str) -> list[str]:
    return [text[one["start_index"] : one["end_index"]] for one in found(text)]


def test_paths_and_names_are_cited() -> None:
    assert cited("[t](sandbox:/mnt/data/a.csv) and a.csv.gz.") == [
        "sandbox:/mnt/data/a.csv",
        "a.csv.gz",
    ]
    assert cited("`d/é.md`, /mnt/data/d/é.md") == ["d/é.md", "/mnt/data/d/é.md"]


def test_what_only_looks_like_one_is_not() -> None:
    assert cited("data.csv xa.csv a.csvx a.csv-old /tmp/a.csv a.csv.bz2 é.md") == []


def test_without_files_there_is_nothing() -> None:
    assert ContainerFileFinder([]).feed("a.csv") == ContainerFileFinder([]).finish() == []


def test_there_are_so_many_and_no_more() -> None:
    assert len(found("a.csv " * 1000)) == 200


def test_of_many_files_the_last_ones_are_looked_for() -> None:
    names = [f"{number}{'x' * 100}" for number in range(1000)] + ["y" * 4000, "last"]
    finder = ContainerFileFinder([NamedFile(name, "c", name) for name in names])
    found = [*finder.feed(" ".join(names)), *finder.finish()]
    assert [one["file_id"] for one in found] == [*names[901:1000], "last"]


@given(st.lists(st.sampled_from([*"a.csvgz/d é", "a.csv", "sandbox:", "/mnt/data/", ".gz"])))
def test_the_pieces_make_no_difference(pieces: list[str]) -> None:
    assert found(*pieces) == found("".join(pieces))
