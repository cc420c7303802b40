"""all-MiniLM-L6-v2, quantised to int8, on onnxruntime: an embedder inside the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnxruntime

from cache.embedder import EmbedderError
from cache.embedders.graph import DIMENSIONS, INPUT, WINDOW
from cache.embedders.installed import GRAPH, NAME, VOCABULARY, verify
from cache.embedders.wordpiece import TextRefused, WordPieces

if TYPE_CHECKING:
    from cache.embedder import Vectors

__all__ = ["MiniLm"]

_TEXTS_AT_ONCE: Final = 8  # then whoever else waits has a turn
_MOST_WAITING: Final = 64
_ERRORS_ONLY: Final = 3


class MiniLm:
    """The model in ``directory``, as ``pointsman embedder install`` leaves it there.

    A text takes about 0.25 ms for each of its word pieces, on a thread of the embedder's own; one
    text is worked on at a time. ``threads`` share the products of a text among them.
    """

    name: str = NAME
    dimensions: int = DIMENSIONS

    def __init__(self, directory: Path, threads: int = 1) -> None:
        self._directory = directory
        self._threads = threads
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")
        # Whether a text is refused is asked first, and takes the same pieces.
        self._pieces: Callable[[str], list[int]] | None = None
        self._words: WordPieces | None = None
        self._session: Any = None
        self._waiting = 0
        self._closed = False

    async def start(self) -> None:
        """Verify and load the model: some 0.2 s, off the event loop. Raises EmbedderError."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._load)

    async def close(self) -> None:
        """What is worked on ends first, within milliseconds; calls that wait end as errors."""
        self._closed = True
        await asyncio.to_thread(self._executor.shutdown)
        self._session = None

    def refuses(self, text: str) -> str | None:
        """``too_long`` past the model's window, ``unknown_tokens`` where the model does not know
        a word or a character, or where tokenisation would lose one (see ``wordpiece``).
        """
        if self._pieces is None:
            raise EmbedderError("the embedder is not started")
        try:
            self._pieces(text)
        except TextRefused as exc:
            return exc.reason
        return None

    def parts(self, text: str) -> list[str]:
        """See ``WordPieces.parts``; takes a few milliseconds for a page."""
        if self._words is None:
            raise EmbedderError("the embedder is not started")
        return self._words.parts(text)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Raises EmbedderError also for a text that is refused, and while too many calls wait."""
        if self._waiting >= _MOST_WAITING:
            raise EmbedderError("too many calls wait for the embedder")
        loop = asyncio.get_running_loop()
        vectors = np.empty((len(texts), DIMENSIONS), dtype=np.float32)
        self._waiting += 1
        try:
            for first in range(0, len(texts), _TEXTS_AT_ONCE):
                if self._closed:
                    raise EmbedderError("the embedder is closed")
                some = slice(first, first + _TEXTS_AT_ONCE)
                vectors[some] = await loop.run_in_executor(self._executor, self._run, texts[some])
        finally:
            self._waiting -= 1
        return vectors

    def _load(self) -> None:
        verify(self._directory)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        # Threads that wait for the next product would otherwise keep their cores busy.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            vocabulary = (self._directory / VOCABULARY).read_text(encoding="utf-8")
            self._session = onnxruntime.InferenceSession(
                self._directory / GRAPH, options, providers=["CPUExecutionProvider"]
            )
        except Exception as exc:  # onnxruntime's errors have no common class of their own
            raise EmbedderError(f"the model cannot be loaded: {type(exc).__name__}") from None
        self._words = WordPieces(vocabulary, WINDOW)
        self._pieces = lru_cache(_TEXTS_AT_ONCE)(self._words.ids)

    def _run(self, texts: Sequence[str]) -> Vectors:
        if self._closed:
            raise EmbedderError("the embedder is closed")
        if self._pieces is None:
            raise EmbedderError("the embedder is not started")
        vectors = np.empty((len(texts), DIMENSIONS), dtype=np.float32)
        try:
            for row, text in enumerate(texts):
                ids = np.array([self._pieces(text)], dtype=np.int64)
                vectors[row] = self._session.run(None, {INPUT: ids})[0][0]
        except TextRefused as exc:
            raise EmbedderError(f"a text is refused: {exc.reason}") from None
        except Exception as exc:
            raise EmbedderError(f"the model does not run: {type(exc).__name__}") from None
        return vectors
