"""Compressed answers: undone piece by piece, bounded, and refused where they cannot be read."""

from __future__ import annotations

import gzip
import zlib

import pytest

from router.errors import UpstreamFailure
from router.upstream import answer as answer_module
from router.upstream.inflate import PIECE_BYTES
from tests.support.http1 import everything, post, transport_to
from tests.support.upstream import Upstream, silent, streamed, whole


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


CONTENT = b"data: hello\n\n" * 500
GZIPPED = gzip.compress(CONTENT, mtime=0)  # the same in every process that collects tests


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", GZIPPED),
        ("GZip", GZIPPED),
        ("x-gzip", GZIPPED),
        ("deflate", zlib.compress(CONTENT)),
        ("deflate", raw_deflate(CONTENT)),
        ("identity", CONTENT),
    ],
)
@pytest.mark.parametrize("as_body", [False, True])
async def test_compression(coding: str, packed: bytes, as_body: bool) -> None:
    pieces = [packed[at : at + 7] for at in range(0, len(packed), 7)]
    script = streamed(*pieces, headers={"Content-Encoding": coding})
    async with Upstream(script) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        assert await (answer.body() if as_body else everything(answer)) == CONTENT
        answer.close()


async def test_a_compressed_stream_is_passed_on_as_it_comes() -> None:
    packer = zlib.compressobj(wbits=31)
    event = packer.compress(b"data: 1\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)
    script = streamed(event, headers={"Content-Encoding": "gzip"}, then=silent)
    async with Upstream(script) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        assert await answer.read() == b"data: 1\n\n"
        answer.close()


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "x" * 500])
async def test_unknown_compression(coding: str) -> None:
    script = whole(b"?", headers={"Content-Encoding": coding})
    async with Upstream(script, whole(b"ok")) as upstream, transport_to(upstream) as http:
        with pytest.raises(UpstreamFailure, match="compressed its answer, unasked") as caught:
            await http.send(post())
        assert await everything(await http.send(post())) == b"ok"
        assert len(upstream.wires) == 1, "the connection was given back"
        assert coding[:40] in caught.value.message
        assert len(caught.value.message) < 150


@pytest.mark.parametrize("packed", [GZIPPED[:-4], b"not gzip at all"])
async def test_broken_compression(packed: bytes) -> None:
    script = whole(packed, headers={"Content-Encoding": "gzip"})
    async with Upstream(script) as upstream, transport_to(upstream) as http:
        with pytest.raises(UpstreamFailure, match="cannot be decompressed"):
            await everything(await http.send(post()))


async def test_a_bomb_comes_in_bounded_pieces() -> None:
    size = 20 * PIECE_BYTES + 1
    script = whole(gzip.compress(bytes(size)), headers={"Content-Encoding": "gzip"})
    async with Upstream(script) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        sizes = []
        while piece := await answer.read():
            sizes.append(len(piece))
        answer.close()
        assert sum(sizes) == size
        assert max(sizes) <= PIECE_BYTES


@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_a_body_is_bounded(coding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_module, "MAX_BODY_BYTES", 1_000_000)
    pack = gzip.compress if coding == "gzip" else bytes
    headers = {"Content-Encoding": coding}
    fits = whole(pack(bytes(1_000_000)), headers=headers)
    exceeds = whole(pack(bytes(1_000_001)), headers=headers)
    async with Upstream(fits, exceeds) as upstream, transport_to(upstream) as http:
        answer = await http.send(post(stream=False))
        assert len(await answer.body()) == 1_000_000
        answer.close()
        answer = await http.send(post(stream=False))
        with pytest.raises(UpstreamFailure, match="exceeds 1000000 bytes"):
            await answer.body()
        answer.close()
