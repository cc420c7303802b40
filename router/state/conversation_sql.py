"""The statements of ``router.state.conversations``."""

from __future__ import annotations

from typing import Final

from router.state.schema import ALIVE
from router.state.statement import Statement

_THERE: Final = "id = :id AND owner = :owner AND deleted_at IS NULL"
_FREE: Final = "turn_holder IS NULL OR turn_holder = :router OR NOT " + ALIVE.format(
    holder="conversations.turn_holder", now="{now}"
)
_ALREADY: Final = """EXISTS (
    SELECT 1 FROM conversation_items i
    WHERE i.conversation = :id AND i.id = :item AND i.job = :job
)"""

CREATE: Final = Statement(
    """
    INSERT INTO conversations (id, owner, created_at, metadata, next_position, turn, turn_done)
    VALUES (:id, :owner, :created_at, :metadata, :count, 0, 0)
    ON CONFLICT (id) DO NOTHING
    """
)
FIRST_ITEMS: Final = Statement(
    """
    INSERT INTO conversation_items (conversation, position, id, data, hidden)
    VALUES (:id, :position, :item, :data, :hidden)
    ON CONFLICT (conversation, position) DO NOTHING
    """
)
GET: Final = Statement(f"SELECT id, created_at, metadata FROM conversations WHERE {_THERE}")
UPDATE: Final = Statement(f"UPDATE conversations SET metadata = :metadata WHERE {_THERE}")
DELETE: Final = Statement(
    "UPDATE conversations SET deleted_at = {now} WHERE id = :id AND deleted_at IS NULL"
)

AGE: Final = Statement("SELECT created_at FROM conversations WHERE id = :id AND owner = :owner")
_LIST: Final = """
    SELECT id, created_at, metadata FROM conversations
    WHERE owner = :owner AND deleted_at IS NULL AND (created_at, id) {than} (:created_at, :id)
    ORDER BY created_at {way}, id {way} LIMIT :limit
"""
LIST_UP: Final = Statement(_LIST.format(than=">", way="ASC"))
LIST_DOWN: Final = Statement(_LIST.format(than="<", way="DESC"))

MAKE_ROOM: Final = Statement(
    f"""
    UPDATE conversations
    SET next_position = next_position
        + CASE WHEN {_ALREADY} THEN 0 ELSE CAST(:count AS BIGINT) END
    WHERE {_THERE}
    """
)
ADD_ITEMS: Final = Statement(
    f"""
    INSERT INTO conversation_items (conversation, position, id, data, hidden, job)
    SELECT c.id, c.next_position - CAST(:count AS BIGINT) + CAST(:number AS BIGINT),
           CAST(:item AS TEXT), CAST(:data AS {{blob}}), CAST(:hidden AS TEXT),
           CAST(:job AS TEXT)
    FROM conversations c WHERE c.id = :id AND NOT {_ALREADY}
    """
)
PLACE: Final = Statement(
    """
    SELECT (SELECT MIN(i.position) FROM conversation_items i
            WHERE i.conversation = c.id AND i.id = :item),
           (SELECT MAX(i.position) FROM conversation_items i
            WHERE i.conversation = c.id AND i.id = :item)
    FROM conversations c WHERE c.id = :id AND c.owner = :owner AND c.deleted_at IS NULL
    """
)
_ITEMS: Final = """
    SELECT data FROM conversation_items
    WHERE conversation = :id AND position {than} :position
    ORDER BY position {way} LIMIT :limit
"""
ITEMS_UP: Final = Statement(_ITEMS.format(than=">", way="ASC"))
ITEMS_DOWN: Final = Statement(_ITEMS.format(than="<", way="DESC"))
ITEM: Final = Statement(
    """
    SELECT i.position, i.data FROM conversation_items i
    JOIN conversations c ON c.id = i.conversation
    WHERE i.id = :item AND i.conversation = :id AND c.owner = :owner AND c.deleted_at IS NULL
    ORDER BY i.position LIMIT 1
    """
)
DELETE_ITEM: Final = Statement(
    "DELETE FROM conversation_items "
    "WHERE conversation = :id AND position = :position AND id = :item"
)
# Nothing of a history past a bound is loaded: one row says how large it is.
HISTORY: Final = Statement(
    """
    SELECT total.items, total.size, i.data, i.hidden
    FROM conversations c
    CROSS JOIN (
        SELECT COUNT(*) AS items,
               COALESCE(SUM(CAST(LENGTH(data) AS BIGINT) + COALESCE(LENGTH(hidden), 0)), 0) AS size
        FROM conversation_items WHERE conversation = :id
    ) total
    LEFT JOIN conversation_items i
        ON i.conversation = c.id AND total.items <= :items AND total.size <= :bytes
    WHERE c.id = :id AND c.owner = :owner AND c.deleted_at IS NULL
    ORDER BY i.position
    """
)

TURN: Final = Statement(
    f"""
    SELECT turn, CASE WHEN {_FREE} THEN 1 ELSE 0 END FROM conversations WHERE {_THERE}
    """
)
# The second case is this very statement, run again after it was committed.
BEGIN_TURN: Final = Statement(
    f"""
    UPDATE conversations SET turn = :next, turn_holder = :router
    WHERE id = :id AND deleted_at IS NULL
      AND (turn = :turn AND ({_FREE}) OR turn = :next AND turn_holder = :router)
    """
)
HOLDS_TURN: Final = Statement(
    """
    UPDATE conversations SET turn = turn
    WHERE id = :id AND (turn = :turn AND turn_holder = :router OR turn_done = :turn)
    """
)
TURN_ITEMS: Final = Statement(
    """
    INSERT INTO conversation_items (conversation, position, id, data, hidden)
    SELECT c.id, c.next_position + CAST(:number AS BIGINT), CAST(:item AS TEXT),
           CAST(:data AS {blob}), CAST(:hidden AS TEXT)
    FROM conversations c WHERE c.id = :id AND c.turn_done < :turn
    """
)
END_TURN: Final = Statement(
    """
    UPDATE conversations
    SET next_position = next_position + CAST(:count AS BIGINT), turn_done = :turn,
        turn_holder = NULL
    WHERE id = :id AND turn_done < :turn
    """
)
RELEASE_TURN: Final = Statement(
    """
    UPDATE conversations SET turn_holder = NULL
    WHERE id = :id AND turn = :turn AND turn_holder = :router
    """
)

EXPIRED: Final = Statement(
    f"""
    SELECT id, next_position FROM conversations
    WHERE deleted_at < :before
      AND (turn_holder IS NULL OR NOT {ALIVE.format(holder="turn_holder", now="{now}")})
    ORDER BY deleted_at LIMIT :limit
    """
)
DROP_ITEMS: Final = Statement(
    "DELETE FROM conversation_items "
    "WHERE conversation = :id AND position >= :start AND position < :stop"
)
DROP: Final = Statement("DELETE FROM conversations WHERE id = :id")
