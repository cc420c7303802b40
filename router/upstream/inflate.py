"""Decompression of an endpoint's answer, a bounded piece at a time.

Endpoints are asked not to compress; some proxies in between do it all the same.
"""

from __future__ import annotations

import zlib
from typing import Final

__all__ = ["CODINGS", "PIECE_BYTES", "Inflater"]

CODINGS: Final = frozenset({"gzip", "x-gzip", "deflate"})
"""The values of Content-Encoding that an ``Inflater`` understands."""

PIECE_BYTES: Final = 256 * 1024
"""The most that one step gives, however well the data was compressed."""

_GZIP: Final = 16 + zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS
_DEFLATED: Final = 8
"""The compression method in the low half of a zlib stream's first byte."""


class Inflater:
    """Decompresses a body of one of ``CODINGS``; raises ``zlib.error`` for what is none."""

    def __init__(self, coding: str) -> None:
        self._gzip = coding != "deflate"
        self._stream = zlib.decompressobj(_GZIP)
        self._left = b""
        self._full = False
        self._begun = False

    @property
    def pending(self) -> bool:
        """Whether ``feed(b"")`` may give more."""
        return self._full or bool(self._left)

    def feed(self, data: bytes) -> bytes:
        """Up to ``PIECE_BYTES`` of what was compressed; empty when more data is needed."""
        data = self._left + data if self._left else data
        if not data and not self._full:
            return b""
        if not self._begun:
            self._begun = True
            if not self._gzip:
                self._stream = zlib.decompressobj(_deflate_window(data))
        elif self._stream.eof:
            # Another member of the same file.
            self._stream = zlib.decompressobj(_GZIP if self._gzip else zlib.MAX_WBITS)
        piece = self._stream.decompress(data, PIECE_BYTES)
        self._left = self._stream.unused_data or self._stream.unconsumed_tail
        # All input may be consumed while a part of its output is still inside.
        self._full = len(piece) == PIECE_BYTES and not self._stream.eof
        return piece

    def finish(self) -> None:
        """To be called after the last byte; raises ``zlib.error`` when there should be more."""
        if self._begun and not self._stream.eof:
            raise zlib.error("incomplete or truncated stream")


def _deflate_window(data: bytes) -> int:
    """Content-Encoding: deflate is zlib's format; some send the bare deflate stream instead."""
    return zlib.MAX_WBITS if data[0] & 0x0F == _DEFLATED else _RAW
