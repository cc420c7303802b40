"""The statements of ``store``."""

from __future__ import annotations

from typing import Final

from router.state.statement import Statement

__all__ = [
    "ADD",
    "ADD_NAME",
    "DELETE",
    "EXPIRED",
    "GET",
    "LISTS",
    "NAME",
    "PRESENT",
    "TAKEN",
    "TURN",
]

_COLUMNS: Final = "id, owner, filename, purpose, bytes, created_at, expires_at, media_type"
_LIVES: Final = "(expires_at IS NULL OR expires_at > :now)"
NAME: Final = Statement("SELECT name FROM file_directories WHERE id = 1")
ADD_NAME: Final = Statement(
    "INSERT INTO file_directories (id, name) VALUES (1, :name) ON CONFLICT (id) DO NOTHING"
)
GET: Final = Statement(
    f"SELECT {_COLUMNS} FROM files WHERE id = :id AND owner = :owner AND {_LIVES}"
)
TAKEN: Final = Statement(
    f"""
    SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT), COUNT(*) FROM files
    WHERE owner = :owner AND {_LIVES}
    """
)
TURN: Final = Statement(
    # Whoever adds a file holds this row until the commit, so that sums are right.
    """
    INSERT INTO file_owners (owner, added) VALUES (:owner, 1)
    ON CONFLICT (owner) DO UPDATE SET added = file_owners.added + 1
    """
)
ADD: Final = Statement(
    f"""
    INSERT INTO files ({_COLUMNS})
    SELECT CAST(:id AS TEXT), CAST(:owner AS TEXT), CAST(:filename AS TEXT),
           CAST(:purpose AS TEXT), CAST(:bytes AS BIGINT), CAST(:created_at AS BIGINT),
           CAST(:expires_at AS BIGINT), CAST(:media_type AS TEXT)
    WHERE (
        SELECT COALESCE(SUM(bytes), 0) FROM files WHERE owner = CAST(:owner AS TEXT) AND {_LIVES}
    ) + CAST(:bytes AS BIGINT) <= CAST(:most_bytes AS BIGINT) AND (
        SELECT COUNT(*) FROM files WHERE owner = CAST(:owner AS TEXT) AND {_LIVES}
    ) < CAST(:most_files AS BIGINT)
    ON CONFLICT (id) DO NOTHING
    """
)
DELETE: Final = Statement("DELETE FROM files WHERE id = :id")


def _list(comparison: str, order: str, more: str = "") -> Statement:
    return Statement(
        f"""
        SELECT {_COLUMNS} FROM files WHERE owner = :owner AND id {comparison} :after{more}
          AND {_LIVES} ORDER BY id {order} LIMIT :limit
        """
    )


_OF_PURPOSE: Final = " AND purpose = :purpose"
LISTS: Final = {
    (False, False): _list(">", "ASC"),
    (False, True): _list(">", "ASC", _OF_PURPOSE),
    (True, False): _list("<", "DESC"),
    (True, True): _list("<", "DESC", _OF_PURPOSE),
}
"""By whether they go down, and whether for one purpose only."""

EXPIRED: Final = Statement(
    "SELECT id FROM files WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit"
)
PRESENT: Final = Statement("SELECT id FROM files WHERE id >= :first AND id <= :last")
