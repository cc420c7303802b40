"""The pure parts: chunking, fused rankings, filters, citations of files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import InvalidRequest
from router.tools.file_search.citations import (
    FileCitation,
    FileCitationFinder,
    FileSource,
    file_citations,
)
from router.vector_stores.chunking import ChunkingStrategy, chunks, count_tokens
from router.vector_stores.filters import parse_filter
from router.vector_stores.ranking import fused

SOURCES = [
    FileSource(1, "file-a", "pump.md"),
    FileSource(2, "file-b", "pump.md.bak"),
    FileSource(12, "file-c", "a.b"),
]


def test_a_short_text_is_one_piece() -> None:
    assert chunks(" One sentence. ", ChunkingStrategy(100, 50)) == ["One sentence."]
    assert chunks(" \n\t ", ChunkingStrategy(100, 50)) == []


def test_pieces_end_with_a_paragraph_where_there_is_one() -> None:
    text = "\n\n".join(f"Paragraph {n} " + "word " * 20 + "end." for n in range(20))
    pieces = chunks(text, ChunkingStrategy(100, 0))
    assert all(piece.endswith("end.") for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


@given(st.text(max_size=3000), st.integers(20, 200), st.integers(0, 100))
def test_no_piece_is_too_long_and_nothing_is_lost(text: str, size: int, overlap: int) -> None:
    pieces = chunks(text, ChunkingStrategy(size, min(overlap, size // 2)))
    assert all(0 < count_tokens(piece) <= size for piece in pieces)
    place = 0
    for piece in pieces:
        found = text.find(piece, place)
        assert found >= 0
        assert not text[place:found].strip() or found <= place
        place = found
    if pieces and not overlap:
        assert "".join("".join(pieces).split()) == "".join(text.split())


def test_what_both_rankings_have_comes_first() -> None:
    assert fused([(["a", "b", "c"], 1.0), (["c", "d"], 1.0)]) == ["c", "a", "b", "d"]
    assert fused([(["a", "b"], 1.0), (["b"], 0.0)]) == ["a", "b"]


def test_filters_are_bounded() -> None:
    deep: Any = {"type": "eq", "key": "a", "value": 1}
    for _ in range(12):
        deep = {"type": "and", "filters": [deep]}
    with pytest.raises(InvalidRequest, match="nested"):
        parse_filter(deep, "filters")
    wide = {"type": "or", "filters": [{"type": "eq", "key": "a", "value": 1}] * 101}
    with pytest.raises(InvalidRequest, match="comparisons"):
        parse_filter(wide, "filters")
    assert parse_filter({"type": "and", "filters": []}, "filters") is None


def test_marks_are_taken_out_and_names_stay() -> None:
    text, cited = file_citations(
        "Green【1】, as pump.md.bak has it 【 2 † page 3 】. 【9】 and 【見出し】 stay, xpump.md.",
        SOURCES,
    )
    assert text == "Green, as pump.md.bak has it . 【9】 and 【見出し】 stay, xpump.md."
    assert [(one["index"], one["file_id"]) for one in cited] == [
        (5, "file-a"), (21, "file-b"), (29, "file-b"),
    ]  # fmt: skip


@given(
    st.lists(st.sampled_from(["【", "】", "1", "12", "†", "pump.md", ".bak", "x", " ", "\n"])),
    st.data(),
)
def test_the_pieces_of_a_text_make_no_difference(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    finder = FileCitationFinder(SOURCES)
    given_back, place = "", 0
    cited: list[FileCitation] = []
    while place < len(text):
        size = data.draw(st.integers(1, len(text) - place))
        piece, found = finder.feed(text[place : place + size])
        given_back, cited, place = given_back + piece, cited + found, place + size
    piece, found = finder.finish()
    assert (given_back + piece, cited + found) == file_citations(text, SOURCES)
    assert finder.text == given_back + piece
