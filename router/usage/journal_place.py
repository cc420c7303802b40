"""Where the journal is: one directory for each database."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from cache.data_directory import data_directory
from router.settings.accounts import Accounts
from router.settings.schema import State
from router.state.connect import SQLITE
from router.state.upkeep.access import shown_url

__all__ = ["journal_directory"]

_MEMORY: Final = ":memory:"


def journal_directory(accounts: Accounts, state: State, environ: Mapping[str, str]) -> Path | None:
    """``accounts.journal``; else beside the file of SQLite, or in the data directory.

    None is in memory: a database that is in memory ends with the process, so that nothing has to
    outlast it. In the data directory each database has a directory of its own, since what a
    router left behind there must not end up in the database of another.
    """
    if accounts.journal is not None:
        return Path(accounts.journal)
    url = state.url.get_secret_value()
    if url.startswith(SQLITE):
        path = url.removeprefix(SQLITE)
        return None if path == _MEMORY else Path(f"{path}.journal")
    name = sha256(shown_url(state).encode()).hexdigest()[:16]
    return data_directory(environ) / "journal" / name
