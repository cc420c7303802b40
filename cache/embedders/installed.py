"""Where the local model lies, and whether what lies there is what this version makes.

The files are known by their hashes, which are written here: a file that is half written, damaged
or made by another version has another hash and is never used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cache.data_directory import data_directory
from cache.embedder import EmbedderError

__all__ = ["GRAPH", "HASHES", "NAME", "VOCABULARY", "default_directory", "verify"]

# Changes whenever the vectors would.
NAME: Final = "all-MiniLM-L6-v2-int8-1"

GRAPH: Final = "model.onnx"
VOCABULARY: Final = "vocab.txt"
HASHES: Final[Mapping[str, str]] = {
    GRAPH: "c6c09a9fe00788141ee916398d598ac6c88204a587f63afd8c79d773ebf540af",
    VOCABULARY: "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
_INSTALL: Final = "run `pointsman embedder install`"


def default_directory(environ: Mapping[str, str]) -> Path:
    """Where the model is kept unless another directory is named."""
    return data_directory(environ) / "embedders" / "all-MiniLM-L6-v2-int8"


def verify(directory: Path) -> None:
    """Raise EmbedderError unless every file in ``directory`` is what this version makes."""
    for name, expected in HASHES.items():
        try:
            with (directory / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            raise EmbedderError(f"{directory} has no {name}: {_INSTALL}") from None
        except OSError as exc:
            raise EmbedderError(f"{directory / name}: {exc.strerror}") from None
        if found != expected:
            message = f"{directory / name} is damaged or made by another version: {_INSTALL}"
            raise EmbedderError(message)
