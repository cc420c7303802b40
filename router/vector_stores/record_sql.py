"""The SQL of the tables of vector stores, see ``router.vector_stores.records``."""

from __future__ import annotations

from typing import Final

from router.state.schema import ALIVE
from router.state.statement import Statement

FREE: Final = f"(f.holder IS NULL OR NOT {ALIVE.replace('{holder}', 'f.holder')})"
"""A condition: nobody who lives is at work on the file ``f``."""


def _filled(text: str, **words: str) -> str:
    """The text with words in the place of their names in braces; the databases' own stay."""
    for name, word in words.items():
        text = text.replace(f"{{{name}}}", word)
    return text


def _count(status: str) -> str:
    return f"CAST(COALESCE(sum(CASE WHEN f.status = '{status}' THEN 1 ELSE 0 END), 0) AS {{int}})"


_STORE: Final = (
    "id, owner, name, description, created_at, last_active_at, expires_days, expired, metadata"
)
_COUNTS: Final = ", ".join(map(_count, ("in_progress", "completed", "failed", "cancelled")))
_BYTES: Final = "CAST(COALESCE(sum(f.usage_bytes), 0) AS {int})"
_STORE_SHOWN: Final = ", ".join(f"s.{name}" for name in _STORE.split(", "))
_WITH_COUNTS: Final = f"""
    SELECT {_STORE_SHOWN}, {_COUNTS}, {_BYTES}
    FROM ({{chosen}}) AS s
    LEFT JOIN vector_store_files f ON f.store = s.id AND f.status <> 'removing'
    GROUP BY {_STORE_SHOWN} ORDER BY s.id {{way}}
"""

ADD_STORE: Final = Statement(
    f"""
    INSERT INTO vector_stores ({_STORE}, deleted)
    SELECT :id, :owner, :name, CAST(:description AS TEXT), CAST(:created_at AS {{int}}),
        CAST(:last_active_at AS {{int}}), CAST(:expires_days AS {{int}}), 0,
        CAST(:metadata AS {{blob}}), 0
    WHERE (SELECT count(*) FROM vector_stores WHERE owner = :owner AND deleted = 0)
        < CAST(:most AS {{int}})
    ON CONFLICT (id) DO UPDATE SET deleted = 0
    """
)
STORE: Final = Statement(
    _filled(
        _WITH_COUNTS,
        chosen=f"SELECT {_STORE} FROM vector_stores "
        "WHERE id = :id AND owner = :owner AND deleted = 0",
        way="ASC",
    )
)
_STORES: Final = (
    f"SELECT {_STORE} FROM vector_stores WHERE owner = :owner AND deleted = 0 "
    "AND id {than} :place ORDER BY id {way} LIMIT :limit"
)
STORES_UP: Final = Statement(
    _filled(_WITH_COUNTS, chosen=_filled(_STORES, than=">", way="ASC"), way="ASC")
)
STORES_DOWN: Final = Statement(
    _filled(_WITH_COUNTS, chosen=_filled(_STORES, than="<", way="DESC"), way="DESC")
)
STORE_EXISTS: Final = Statement(
    "SELECT expired FROM vector_stores WHERE id = :id AND owner = :owner AND deleted = 0"
)
UPDATE_STORE: Final = Statement(
    """
    UPDATE vector_stores
    SET name = :name, expires_days = :expires_days, metadata = :metadata, last_active_at = :now
    WHERE id = :id AND owner = :owner AND deleted = 0
    """
)
TOUCH: Final = Statement(
    """
    UPDATE vector_stores SET last_active_at = :now
    WHERE id = :id AND last_active_at < CAST(:before AS {int}) AND deleted = 0
    """
)
ADMIT: Final = Statement(
    """
    UPDATE vector_stores SET last_active_at = :now
    WHERE id = :store AND owner = :owner AND deleted = 0 AND expired = 0
    """
)
DELETE_STORE: Final = Statement(
    "UPDATE vector_stores SET deleted = 1 WHERE id = :id AND owner = :owner AND deleted = 0"
)
REMOVE_FILES: Final = Statement(
    """
    UPDATE vector_store_files SET status = 'removing', fence = fence + 1
    WHERE store = :id AND status <> 'removing'
    """
)
EXPIRE: Final = Statement(
    """
    UPDATE vector_stores SET expired = 1
    WHERE expires_days IS NOT NULL AND expired = 0
    AND last_active_at + expires_days * 86400 < {now}
    """
)
REMOVE_EXPIRED: Final = Statement(
    """
    UPDATE vector_store_files SET status = 'removing', fence = fence + 1
    WHERE status <> 'removing' AND store IN (
        SELECT id FROM vector_stores WHERE expires_days IS NOT NULL AND expired = 1
    )
    """
)
REMOVE_GONE: Final = Statement(
    """
    UPDATE vector_store_files SET status = 'removing', fence = fence + 1
    WHERE status <> 'removing' AND NOT EXISTS (
        SELECT 1 FROM files WHERE files.id = vector_store_files.file
        AND (files.expires_at IS NULL OR files.expires_at > {now})
    )
    """
)
DELETED_STORES: Final = Statement(
    f"""
    SELECT s.id FROM vector_stores s WHERE s.deleted = 1 AND NOT EXISTS (
        SELECT 1 FROM vector_store_files f WHERE f.store = s.id AND NOT {FREE}
    ) LIMIT :limit
    """
)
DROP_STORE: Final = Statement("DELETE FROM vector_stores WHERE id = :id AND deleted = 1")

ADD_BATCH: Final = Statement(
    """
    INSERT INTO vector_store_batches (id, store, created_at, cancelled)
    VALUES (:batch, :store, :now, 0) ON CONFLICT (id) DO NOTHING
    """
)
BATCH: Final = Statement(
    f"""
    SELECT b.id, b.store, b.created_at, b.cancelled, {_COUNTS}
    FROM vector_store_batches b
    LEFT JOIN vector_store_files f ON f.batch = b.id AND f.status <> 'removing'
    WHERE b.id = :id AND b.store = :store
    GROUP BY b.id, b.store, b.created_at, b.cancelled
    """
)
CANCEL_BATCH: Final = Statement(
    "UPDATE vector_store_batches SET cancelled = 1 WHERE id = :id AND store = :store"
)
CANCEL_FILES: Final = Statement(
    """
    UPDATE vector_store_files SET status = 'cancelled', fence = fence + 1
    WHERE batch = :id AND status = 'in_progress'
    """
)

_FILE: Final = (
    "f.store, f.file, f.owner, f.place, f.filename, f.batch, f.created_at, f.status, "
    "f.error_code, f.error_message, f.usage_bytes, f.attributes, f.chunk_size, f.chunk_overlap, "
    "f.embedder, f.fence, f.attempts"
)
# Whoever is at work on a former addition keeps the file until that is over.
ADD_FILE: Final = Statement(
    """
    INSERT INTO vector_store_files (
        store, file, owner, place, filename, batch, created_at, status, usage_bytes, attributes,
        chunk_size, chunk_overlap, fence, attempts, not_before
    ) VALUES (
        :store, :file, :owner, :place, :filename, :batch, :now, 'in_progress', 0, :attributes,
        :size, :overlap, 0, 0, 0
    )
    ON CONFLICT (store, file) DO UPDATE SET
        place = excluded.place, batch = excluded.batch, created_at = excluded.created_at,
        filename = excluded.filename, status = 'in_progress', error_code = NULL,
        error_message = NULL, usage_bytes = 0, attributes = excluded.attributes,
        chunk_size = excluded.chunk_size, chunk_overlap = excluded.chunk_overlap,
        embedder = NULL, fence = vector_store_files.fence + 1, attempts = 0, not_before = 0
    """
)
FILE: Final = Statement(
    f"""
    SELECT {_FILE} FROM vector_store_files f
    WHERE f.store = :store AND f.file = :file AND f.status <> 'removing'
    """
)
_FILES: Final = f"""
    SELECT {_FILE} FROM vector_store_files f
    WHERE f.store = :store AND f.status <> 'removing' AND f.place {{than}} :place {{more}}
    ORDER BY f.place {{way}} LIMIT :limit
"""
_IN_STATUS: Final = "AND (CAST(:status AS TEXT) IS NULL OR f.status = :status)"
_IN_BATCH: Final = f"{_IN_STATUS} AND f.batch = :batch"
FILES_UP: Final = Statement(_filled(_FILES, than=">", way="ASC", more=_IN_STATUS))
FILES_DOWN: Final = Statement(_filled(_FILES, than="<", way="DESC", more=_IN_STATUS))
BATCH_FILES_UP: Final = Statement(_filled(_FILES, than=">", way="ASC", more=_IN_BATCH))
BATCH_FILES_DOWN: Final = Statement(_filled(_FILES, than="<", way="DESC", more=_IN_BATCH))
FILE_COUNT: Final = Statement(
    "SELECT count(*) FROM vector_store_files WHERE store = :store AND status <> 'removing'"
)
# What a search has found is shown only where it is still there.
NAME_IN: Final = Statement(
    """
    SELECT f.file, f.filename FROM vector_store_files f JOIN files ON files.id = f.file
    WHERE f.store = :store AND f.file = :file AND f.status IN ('completed', 'in_progress')
    AND (files.expires_at IS NULL OR files.expires_at > {now})
    """
)
SET_ATTRIBUTES: Final = Statement(
    """
    UPDATE vector_store_files SET attributes = :attributes
    WHERE store = :store AND file = :file AND status <> 'removing'
    """
)
REMOVE_FILE: Final = Statement(
    """
    UPDATE vector_store_files SET status = 'removing', fence = fence + 1
    WHERE store = :store AND file = :file AND status <> 'removing'
    """
)

# The owner with the fewest files before this one comes first: nobody's batch is in others' way.
CANDIDATES: Final = Statement(
    f"""
    SELECT {_FILE.replace("f.", "ready.")} FROM (
        SELECT f.*, row_number() OVER (PARTITION BY f.owner ORDER BY f.place) AS turn
        FROM vector_store_files f
        WHERE f.status = 'in_progress' AND f.not_before <= {{now}}
        AND ({FREE} OR f.holder = :holder)
    ) AS ready
    ORDER BY ready.turn, ready.place LIMIT :limit
    """
)
WAITING: Final = Statement(
    "SELECT COUNT(*) FROM vector_store_files f "
    "WHERE f.status = 'in_progress' AND f.status IN ('in_progress', 'removing')"
)
REMOVING: Final = Statement(
    f"""
    SELECT {_FILE} FROM vector_store_files f
    WHERE f.status = 'removing' AND f.status IN ('in_progress', 'removing')
    AND ({FREE} OR f.holder = :holder)
    ORDER BY f.place LIMIT :limit
    """
)
CLAIM: Final = Statement(
    f"""
    UPDATE vector_store_files AS f SET holder = :holder, fence = CAST(:fence AS {{int}}) + 1,
        attempts = CAST(:attempts AS {{int}}) + 1
    WHERE f.store = :store AND f.file = :file AND f.status = :status AND (
        (f.fence = :fence AND ({FREE} OR f.holder = :holder))
        OR (f.fence = CAST(:fence AS {{int}}) + 1 AND f.holder = :holder)
    )
    """
)
FINISH: Final = Statement(
    """
    UPDATE vector_store_files SET status = :status, error_code = :error_code,
        error_message = :error_message, usage_bytes = :usage_bytes, embedder = :embedder,
        holder = NULL
    WHERE store = :store AND file = :file AND fence = :fence
    """
)
POSTPONE: Final = Statement(
    """
    UPDATE vector_store_files SET holder = NULL, not_before = {now} + CAST(:seconds AS {real})
    WHERE store = :store AND file = :file AND fence = :fence
    """
)
GIVE_BACK: Final = Statement(
    """
    UPDATE vector_store_files SET holder = NULL, attempts = attempts - 1
    WHERE store = :store AND file = :file AND fence = :fence AND holder = :holder
    """
)
RELEASE: Final = Statement(
    """
    UPDATE vector_store_files SET holder = NULL
    WHERE store = :store AND file = :file AND holder = :holder
    """
)
DROP_FILE: Final = Statement(
    """
    DELETE FROM vector_store_files
    WHERE store = :store AND file = :file AND status = 'removing' AND fence = :fence
    """
)
AGAIN: Final = Statement(
    """
    UPDATE vector_store_files SET status = 'in_progress', attempts = 0, not_before = 0
    WHERE status = 'completed' AND embedder <> :embedder
    """
)
