"""A finished text in the pieces in which it is told again."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

import orjson

from router.response.frame import Frame

__all__ = ["MAX_PIECES", "frame_tokens", "pieces", "with_logprobs"]

Entry = dict[str, Any]

MAX_PIECES: Final = 2000
"""In so many pieces, or one more, a text is told however long it is."""

_BYTES_PER_TOKEN: Final = 4
_RUN: Final = 8
"""Characters of a piece of what has no white space."""

_LONGEST_WORD: Final = 24
_LONGEST_CLUSTER: Final = 64
"""A character with more marks than that may be cut."""

# Other scripts than Latin do without white space more often: there a run is cut sooner.
_ASCII_WORDS: Final = re.compile(r"\S{1,32}(?!\S)\s*|\S{8}|\s+")
_WORDS: Final = re.compile(r"\S{1,16}(?!\S)\s*|\S{8}|\s+")
_BLANK: Final = re.compile(r"\s+")

_JOINER: Final = "\u200d"
_FIRST_MARK: Final = "\u0300"
_MARKS: Final = frozenset({"Mn", "Mc", "Me"})
_REGIONAL: Final = "".join(map(chr, range(0x1F1E6, 0x1F200)))
"""The letters that flags are made of."""


def pieces(text: str) -> list[str]:
    """Cut a text into words, each with the white space after it; joined they are the text.

    Long runs without white space are cut, though not between a character and its marks. The
    longer the text, the longer the pieces, so that there are never more than some 2000.
    """
    if len(text) > 2 * MAX_PIECES:
        cut = _long_pieces(text)
    else:
        cut = (_ASCII_WORDS if text.isascii() else _WORDS).findall(text)
    return cut if text.isascii() else _mended(cut)


def with_logprobs(text: str, logprobs: list[Entry]) -> list[tuple[str, list[Entry]]]:
    """Pieces of a text, each with the log probabilities of its tokens.

    Where the tokens are not those of the text, the last piece has them all.
    """
    cut = _by_tokens(text, logprobs)
    if cut is not None:
        return cut
    *others, last = pieces(text) or [""]
    return [*((piece, []) for piece in others), (last, logprobs)]


def frame_tokens(frame: Frame) -> float:
    """About how many tokens an event brings, a Responses event or a chat chunk; 0 for others.

    Counted where there are log probabilities, else estimated from the text.
    """
    if frame.type.endswith(".delta"):
        event = orjson.loads(frame.data)
        return _weight(event.get("delta"), event.get("logprobs"))
    if frame.type or frame.data == b"[DONE]":
        return 0.0
    choices = orjson.loads(frame.data).get("choices")
    if not choices:
        return 0.0
    delta = choices[0].get("delta") or {}
    said = "".join(text for key, text in delta.items() if key != "role" and isinstance(text, str))
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or call.get("custom") or {}
        said += function.get("arguments") or function.get("input") or ""
    return _weight(said, (choices[0].get("logprobs") or {}).get("content"))


def _weight(text: Any, logprobs: Any) -> float:
    if logprobs:
        return float(len(logprobs))
    # Bytes rather than characters: of other scripts a token holds fewer.
    return len(text.encode()) / _BYTES_PER_TOKEN if isinstance(text, str) else 0.0


def _by_tokens(text: str, logprobs: list[Entry]) -> list[tuple[str, list[Entry]]] | None:
    """The text cut between tokens, or None where they are not those of the text.

    A token may be a part of a character: it goes with those that complete it.
    """
    per_piece = -(-len(logprobs) // MAX_PIECES)
    cut: list[tuple[str, list[Entry]]] = []
    octets, entries = b"", []
    try:
        for number, entry in enumerate(logprobs, 1):
            known = entry.get("bytes")
            octets += entry["token"].encode() if known is None else bytes(known)
            entries.append(entry)
            if number % per_piece == 0 and (piece := _decoded(octets)):
                cut.append((piece, entries))
                octets, entries = b"", []
        if octets or not cut:
            cut.append((octets.decode(), entries))
        else:
            cut[-1][1].extend(entries)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return cut if "".join(piece for piece, _ in cut) == text else None


def _decoded(octets: bytes) -> str:
    """The text of these bytes; empty where they end within a character."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return ""


def _long_pieces(text: str) -> list[str]:
    """Pieces of at least 1/2000 of the text, each up to the end of a word where one is near."""
    size = -(-len(text) // MAX_PIECES)
    cut = []
    start = 0
    while start < len(text):
        soonest = start + size
        blank = _BLANK.search(text, soonest - 1, soonest + _LONGEST_WORD)
        end = blank.end() if blank else start + max(size, _RUN)
        cut.append(text[start:end])
        start = end
    return cut


def _mended(cut: list[str]) -> list[str]:
    """The pieces, with what a reader sees as one character in one of them."""
    whole = cut[:1]
    for piece in cut[1:]:
        taken = _belonging(piece, whole[-1])
        if taken:
            whole[-1] += piece[:taken]
        if taken < len(piece):
            whole.append(piece[taken:])
    return whole


def _belonging(piece: str, before: str) -> int:
    """How many characters at the beginning of ``piece`` are shown as one with what is before."""
    if piece[0] < _FIRST_MARK and before[-1] != _JOINER:
        return 0
    before = before[-_LONGEST_CLUSTER:]
    taken = 0
    for char in piece[:_LONGEST_CLUSTER]:
        if not _belongs(char, before):
            break
        before += char
        taken += 1
    return taken


def _belongs(char: str, before: str) -> bool:
    if before[-1] == _JOINER or char == _JOINER or unicodedata.category(char) in _MARKS:
        return True
    if char in _REGIONAL:  # a flag is two of them
        return (len(before) - len(before.rstrip(_REGIONAL))) % 2 == 1
    # The colours of skin, the tags of flags, and the vowels and finals of a Hangul syllable.
    return (
        "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
        or "\u1160" <= char <= "\u11ff"
    )
