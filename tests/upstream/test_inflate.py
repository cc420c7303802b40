"""Decompression: any cut, bounded pieces, several members, nothing accepted that is cut short."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.upstream.inflate import PIECE_BYTES, Inflater


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw": ("deflate", raw_deflate),
}


def unpack(inflater: Inflater, pieces: list[bytes]) -> bytes:
    """Everything, the way a reader drives it."""
    out = []
    for piece in pieces:
        out.append(inflater.feed(piece))
        while inflater.pending:
            out.append(inflater.feed(b""))
            assert len(out[-1]) <= PIECE_BYTES
    inflater.finish()
    return b"".join(out)


@pytest.mark.parametrize("kind", PACKERS)
@given(data=st.binary(max_size=2000), cuts=st.lists(st.integers(0, 2500), max_size=5))
def test_any_cut(kind: str, data: bytes, cuts: list[int]) -> None:
    coding, pack = PACKERS[kind]
    packed = pack(data)
    edges = sorted({0, len(packed), *(min(cut, len(packed)) for cut in cuts)})
    pieces = [packed[a:b] for a, b in itertools.pairwise(edges)]
    assert unpack(Inflater(coding), pieces) == data


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("extra", [-1, 0, 1, PIECE_BYTES])
def test_a_tight_pack_comes_in_bounded_pieces(kind: str, extra: int) -> None:
    coding, pack = PACKERS[kind]
    data = bytes(PIECE_BYTES * 3 + extra)
    inflater = Inflater(coding)
    assert len(inflater.feed(pack(data))) == PIECE_BYTES
    assert inflater.pending
    assert unpack(Inflater(coding), [pack(data)]) == data


def test_members_follow_each_other() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two ") + gzip.compress(b"three")
    assert unpack(Inflater("gzip"), [packed]) == b"one two three"
    assert unpack(Inflater("gzip"), [bytes([b]) for b in packed]) == b"one two three"


@pytest.mark.parametrize("kind", PACKERS)
def test_cut_short(kind: str) -> None:
    coding, pack = PACKERS[kind]
    with pytest.raises(zlib.error):
        unpack(Inflater(coding), [pack(b"Hello, world" * 10)[:-5]])


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_not_compressed_at_all(coding: str) -> None:
    with pytest.raises(zlib.error):
        unpack(Inflater(coding), [b'{"not": "compressed"}'])


def test_rubbish_behind_the_end() -> None:
    with pytest.raises(zlib.error):
        unpack(Inflater("gzip"), [gzip.compress(b"x") + b"rubbish"])


def test_nothing_at_all() -> None:
    assert unpack(Inflater("gzip"), [b""]) == b""
