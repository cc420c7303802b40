"""Texts that are longer than the window, or have what the vocabulary does not know."""

from __future__ import annotations

from cache.embedders.wordpiece import WordPieces

PIECES = WordPieces("[CLS]\n[SEP]\nred\nblue\n##ish\n.", window=5)


def test_a_long_text_has_parts_that_fit() -> None:
    parts = PIECES.parts("Red blue reddish redish. red  blue\n\nblueish")
    assert parts == ["Red blue", "redish.", "red blue", "blueish"]
    assert all(len(PIECES.ids(part)) <= 5 for part in parts)


def test_what_is_not_known_is_left_out() -> None:
    assert PIECES.parts("réd 青 green blue") == ["red blue"]
    assert PIECES.parts("青 \n green") == []
    assert PIECES.parts("red" * 100) == []
