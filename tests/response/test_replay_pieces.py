"""Texts cut into pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.response.replay import MAX_PIECES, pieces, with_logprobs
from tests.support.reading import FUZZ

FAMILY = "👨‍👩‍👧‍👦"
FLAG = "🇩🇪"


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("", []),
        ("word", ["word"]),
        ("Two words.", ["Two ", "words."]),
        ("  led, trailed\n\n", ["  ", "led, ", "trailed\n\n"]),
        (" \n\t", [" \n\t"]),
        ("a\u00a0b\u2028c", ["a\u00a0", "b\u2028", "c"]),
        ("x" * 32 + " y", ["x" * 32 + " ", "y"]),
        ("x" * 50 + " y", ["x" * 8] * 3 + ["x" * 26 + " ", "y"]),
        ("Überwältigend schön", ["Überwältigend ", "schön"]),
        ("世界" * 20, ["世界" * 4] * 3 + ["世界" * 8]),
        ("a \u0301b", ["a \u0301", "b"]),
        ("世" * 8 + "\u0301" + "界" * 16, ["世" * 8 + "\u0301", "界" * 7, "界" * 9]),
    ],
)
def test_at_word_boundaries(text: str, cut: list[str]) -> None:
    assert pieces(text) == cut


@pytest.mark.parametrize(
    "whole", [FAMILY, FLAG, "e\u0301\u0323", "👍🏽", "각", "नि", "\u2764\ufe0f"]
)
def test_what_is_seen_as_one_is_not_cut(whole: str) -> None:
    for before in range(16):
        text = "x" * before + "世" + whole * 40
        assert "".join(pieces(text)) == text
        assert all(piece.lstrip("x世").replace(whole, "") == "" for piece in pieces(text))


def test_more_marks_than_anybody_reads() -> None:
    for text in ("x" + "\u0301" * 4000, "x" + "\u0301" * 400_000):
        assert "".join(pieces(text)) == text
        assert len(pieces(text)) <= MAX_PIECES + 1


@pytest.mark.parametrize(
    "text",
    ["word " * 50_000, "x" * 300_000, "世" * 100_000, "a " * 2001, "ab\n" * 3000, " " * 90_000],
)
def test_the_longer_the_text_the_longer_its_pieces(text: str) -> None:
    cut = pieces(text)
    assert "".join(cut) == text
    assert len(cut) <= MAX_PIECES + 1
    if " " in text or "\n" in text:
        assert all(piece.endswith((" ", "\n")) for piece in cut)


ALPHABET = st.sampled_from(
    [*"abc \n\t", "世", "\u0301", "\u200d", "👩", "🏽", "🇩", "\u1161", "\u00a0"]
)


@FUZZ
@given(st.one_of(st.text(ALPHABET, max_size=200), st.text(max_size=200)), st.integers(1, 60))
def test_joined_they_are_the_text(text: str, times: int) -> None:
    for whole in (text, text * times):
        cut = pieces(whole)
        assert "".join(cut) == whole
        assert all(cut)
        assert len(cut) <= MAX_PIECES + 1
        # Nothing but its joins with its neighbours keeps a piece from beginning with a word.
        assert not any(piece[0] == "\u0301" for piece in cut[1:] if "\u0301" * 9 not in whole)


@FUZZ
@given(st.text(max_size=40), st.lists(st.integers(0, 60), max_size=12))
def test_pieces_with_log_probabilities(text: str, cuts: list[int]) -> None:
    """Tokens are bytes: they may end within a character."""
    octets = text.encode()
    edges = [0, *sorted(min(cut, len(octets)) for cut in cuts), len(octets)]
    tokens = [octets[a:b] for a, b in pairwise(edges)]
    entries = [{"token": "?", "bytes": list(token)} for token in tokens]
    cut = with_logprobs(text, entries)
    assert "".join(piece for piece, _ in cut) == text
    assert [entry for _, group in cut for entry in group] == entries
    assert all(
        bytes(o for e in group for o in e["bytes"]).decode() == piece for piece, group in cut
    )
    assert all(piece for piece, _ in cut) or not text


def test_many_tokens_share_their_pieces() -> None:
    entries = [{"token": "ab"}] * 5000
    cut = with_logprobs("ab" * 5000, entries)
    assert len(cut) <= MAX_PIECES
    assert {len(group) for _, group in cut} <= {2, 3}
    assert sum(len(group) for _, group in cut) == 5000
