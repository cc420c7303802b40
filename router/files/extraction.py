"""The text of files, extracted by child processes with limits of time, memory and size."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from signal import SIGXCPU
from typing import IO, Final

import orjson

from router.errors import Overloaded
from router.settings.files import ExtractionSettings
from router.settings.words import install_extra

__all__ = [
    "ExtractedText",
    "ExtractionFailed",
    "TextExtractor",
    "UnsupportedFile",
    "missing_extractors",
]

_CHILD: Final = Path(__file__).with_name("extraction_child.py")
_ENVIRONMENT: Final = ("LD_LIBRARY_PATH",)
"""What the process gets of the router's environment, which has keys in it."""

_MIB: Final = 1024 * 1024
_BYTES: Final = 4
"""Of a character, at most."""
_HEAD: Final = 4096
_SHOWN: Final = 255
_MODULES: Final = ("docx", "pypdf", "resiliparse")


class UnsupportedFile(Exception):
    """Files of this kind have no text that could be extracted: a sentence for the client."""


class ExtractionFailed(Exception):
    """The text could not be extracted: why, as a sentence for the client."""


@dataclass(frozen=True, slots=True)
class ExtractedText:
    """The text of a file, which is never empty, and the media type of what it was found to be."""

    text: str
    media_type: str


def missing_extractors() -> str | None:
    """What to install so that text can be extracted; None where nothing is missing."""
    if any(find_spec(module) is None for module in _MODULES):
        return f"no text can be extracted from PDF, DOCX and HTML files; {install_extra('files')}"
    return None


class TextExtractor:
    """Extracts text, of ``settings.processes`` files at once; more wait."""

    def __init__(self, settings: ExtractionSettings) -> None:
        self.settings = settings
        self._threads: ThreadPoolExecutor | None = None
        self._under_way = 0

    async def extract(
        self, path: Path, filename: str, media_type: str | None = None
    ) -> ExtractedText:
        """The text of the file at ``path``; ``filename`` is what its client calls it.

        Raises UnsupportedFile, ExtractionFailed, and Overloaded where too many wait.
        """
        return await self._run(lambda: path.open("rb"), filename, media_type)

    async def extract_data(
        self, data: bytes, filename: str, media_type: str | None = None
    ) -> ExtractedText:
        """``extract`` for the content of a file."""
        return await self._run(lambda: _temporary(data), filename, media_type)

    def close(self) -> None:
        """Extract nothing any more; what is under way ends with its time."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(
        self, opened: Callable[[], IO[bytes]], filename: str, media_type: str | None
    ) -> ExtractedText:
        settings = self.settings
        if self._under_way >= settings.processes + settings.max_waiting:
            raise Overloaded(
                "Too many files wait for their text to be extracted; try again.",
                headers={"Retry-After": "1"},
            )
        if self._threads is None:
            self._threads = ThreadPoolExecutor(settings.processes, "file-text")
        extraction = _FileExtraction(opened, filename, media_type or "", settings)
        self._under_way += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, extraction.run)
        except asyncio.CancelledError:
            extraction.kill()
            raise
        finally:
            self._under_way -= 1


class _FileExtraction:
    """One file's process, watched by a thread: event loops take far longer to start one."""

    def __init__(
        self,
        opened: Callable[[], IO[bytes]],
        filename: str,
        media_type: str,
        settings: ExtractionSettings,
    ) -> None:
        self._opened = opened
        self._settings = settings
        said = media_type.partition(";")[0].strip().lower()
        # -I: without what the environment and the working directory add to the path.
        self._command = [
            sys.executable,
            "-I",
            str(_CHILD),
            *(_printable(text) for text in (filename[-_SHOWN:], said[:_SHOWN])),
            str(settings.max_characters),
            str(int(settings.max_expanded_mb * _MIB)),
            str(ceil(settings.timeout)),
            str(int(settings.memory_mb)),
        ]
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = True
        self._late = False

    def run(self) -> ExtractedText:
        """Start it and wait for its end; raises UnsupportedFile, ExtractionFailed."""
        with self._file() as file:
            if os.fstat(file.fileno()).st_size > self._settings.max_mb * _MIB:
                raise ExtractionFailed(
                    f"It is larger than {self._settings.max_mb:g} MiB, the most that text is "
                    "extracted from."
                )
            process = self._started(file)
        limit = self._settings.max_characters * _BYTES + _HEAD
        alarm = threading.Timer(self._settings.timeout, self._expire)
        alarm.start()
        try:
            assert process.stdout is not None
            answer = process.stdout.read(limit + 1)
        finally:
            alarm.cancel()
            process.kill()
            process.communicate()
        return self._result(answer, process.returncode, limit)

    def kill(self) -> None:
        """End it: nobody waits for it."""
        with self._turn:
            self._wanted = False
            if self._process is not None:
                self._process.kill()

    def _expire(self) -> None:
        self._late = True
        self.kill()

    def _file(self) -> IO[bytes]:
        try:
            return self._opened()
        except OSError as error:
            raise ExtractionFailed("The router cannot read it.") from error

    def _started(self, file: IO[bytes]) -> subprocess.Popen[bytes]:
        with self._turn:
            if not self._wanted:
                raise ExtractionFailed("Nobody waits for it.")
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=file,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                )
            except OSError as error:
                raise ExtractionFailed("The router can start no process to read it.") from error
            return self._process

    def _result(self, answer: bytes, status: int | None, limit: int) -> ExtractedText:
        head, line, raw = answer.partition(b"\n")
        if not line or len(answer) > limit:
            late = self._late or status == -SIGXCPU
            raise ExtractionFailed(
                f"Its text could not be extracted within {self._settings.timeout:g} s."
                if late
                else "Its text could not be extracted: it takes too much memory, or is damaged."
            )
        found = orjson.loads(head)
        if "unsupported" in found:
            raise UnsupportedFile(found["unsupported"])
        if "failed" in found:
            raise ExtractionFailed(found["failed"])
        return ExtractedText(raw.decode("utf-8", "replace"), found["media_type"])


def _temporary(data: bytes) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked for it closes it
    try:
        file.write(data)
        file.flush()
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _printable(text: str) -> str:
    """What can be an argument of a command."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")
