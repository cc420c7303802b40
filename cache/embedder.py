"""What an embedder promises: texts in, vectors of length 1 out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

__all__ = ["Embedder", "EmbedderError"]


class EmbedderError(Exception):
    """The text could not be embedded now; the message is for the log and holds no text."""


class Embedder(Protocol):
    """Turns texts into vectors. ``name`` names the model and all that decides its vectors: those
    of different names are never compared. ``dimensions`` is their length, 0 until the first is
    known.
    """

    name: str
    dimensions: int

    async def start(self) -> None:
        """Make ready; raises EmbedderError where it cannot be used, saying what to do."""
        ...

    async def close(self) -> None:
        """Let go of everything; called once, also when ``start`` failed."""
        ...

    def refuses(self, text: str) -> str | None:
        """Why this text has no vector that can be trusted: ``too_long`` or ``unknown_tokens``;
        None where nothing speaks against it. Quick: it is called on the event loop.
        """
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, of length 1. Off the event loop. Raises EmbedderError."""
        ...
