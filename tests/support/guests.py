"""Clients that cannot live in the tests' own environment, each run as a program that prints JSON.

What they need is installed once, next to the interpreter's packages (``make clean`` removes it),
and again when its list changes. Where that cannot be had their tests are skipped, saying why.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

__all__ = ["node_packages", "python_packages", "said_by"]

PATIENCE = 300.0
"""Seconds until a program that has not ended counts as hanging."""
INSTALLING = 900
"""Seconds that an installation may take."""

_HOME = Path(sys.prefix) / "guests"
_OFFLINE = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|code E5\d\d"
    r"|Temporary failure in name resolution|Failed to establish a new connection|Name or service"
    r"|No matching distribution found .*\(from versions: none\)|Max retries exceeded"
)


def node_packages(sources: Path) -> Path:
    """A directory with the scripts of ``sources`` and the packages that its lock file names."""
    for command in ("node", "npm"):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed")
    lists = [sources / "package.json", sources / "package-lock.json"]
    home = _HOME / f"node-{_digest(*(path.read_bytes() for path in lists))}"
    with _once(home) as needed:
        if needed:
            for path in lists:
                shutil.copy(path, home)
            _install(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], home)
        for script in sources.glob("*.mjs"):
            # Packages are looked for beside the script; another test may be about to read it.
            copy = home / f"{script.name}.{os.getpid()}"
            shutil.copy(script, copy)
            copy.replace(home / script.name)
    return home


def python_packages(*requirements: str) -> Path:
    """The interpreter of an environment that has these packages and nothing of the project's."""
    home = _HOME / f"python-{_digest(sys.version.encode(), *map(str.encode, requirements))}"
    python = home / "bin" / "python"
    with _once(home) as needed:
        if needed:
            _install([sys.executable, "-m", "venv", "--without-pip", str(home)], home)
            pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
            _install([*pip, "--disable-pip-version-check", *requirements], home)
    return python


async def said_by(*command: str | Path, env: Mapping[str, str]) -> Any:
    """What a program printed as its last line, decoded; fails with its complaints."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            output, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, complaints.decode()[-4000:]
    return orjson.loads(output.splitlines()[-1])


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


@contextlib.contextmanager
def _once(home: Path) -> Iterator[bool]:
    """Whether this process is to fill ``home``; others wait for it, and find it complete."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home.parent / f"{home.name}.lock").open("w")
    except OSError as error:
        pytest.skip(f"nothing can be installed in {home.parent}: {error}")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete = home / ".complete"
        needed = not complete.exists()
        yield needed
        complete.touch()


def _install(command: Sequence[str], home: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=home, capture_output=True, text=True, timeout=INSTALLING, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{command[0]} did not install the client within {INSTALLING} seconds")
    if done.returncode:
        told = (done.stderr or done.stdout)[-3000:]
        if _OFFLINE.search(told):
            pytest.skip(f"the client cannot be installed here: {told[-300:]}")
        pytest.fail(f"{' '.join(command)} failed:\n{told}")
