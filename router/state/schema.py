"""The tables, as a list of versions. A version that was released is never changed.

Times are in seconds since 1970. JSON is kept as bytes: PostgreSQL's JSONB refuses ``\\u0000``.

    responses            one row per stored response; runs that go on have one from the start
    response_items       which response an item is in, by its key, for references to it; not for
                         items whose ids tell that, see router.state.items
    runs                 background and durable runs: whose they are, and how far
    run_requests         what is to be run, until it is over
    events               what a run has sent: one row per batch of server-sent events
    conversations        and conversation_items, in order of ``position``
    prompts              and prompt_versions
    routers              the processes that share this database, and until when they count as alive
    usage                the ledger: one row per attempt, see core.usage_record; old ones may be
                         rolled up into one per hour or day, see router.state.rollup
    usage_rollups        who rolls up next
    virtual_keys         the keys that are made while the router runs
    compaction_keys      what the summaries of compacted conversations are encrypted with
    files                what clients have uploaded: one row per file that is all there
    file_owners          whose row is held while one of their files is added
    containers           where the code of models runs, and whose
    container_uploads    those of their files that clients have put there
    file_directories     the name of the directory that this database's files are in
    vector_stores        with vector_store_batches, and vector_store_files: what is to be, or has
                         been, extracted, embedded and indexed
"""

from __future__ import annotations

from typing import Final

__all__ = ["ALIVE", "SCHEMA_VERSION", "VERSIONS"]

ALIVE: Final = (
    "EXISTS (SELECT 1 FROM routers WHERE routers.id = {holder} AND routers.until > {now})"
)
"""A condition: the router in the column that ``{holder}`` is replaced by is alive."""

_RESPONSES: Final = (
    # parent: whose history this one continues; NULL, or the deleted parent's own parent.
    # body: the Response object without output and output_text. input, output: JSON arrays of
    # items. hidden: {item id: encrypted reasoning} that the client did not ask for.
    # account: the endpoint account that answered, see router.core.upstream.account_of.
    # A deleted response is status 'deleted' with nothing in it, until retention takes it: a
    # request that continues it may still be under way, and its chain goes on above it.
    # response_items.sent: 1 for what came with the request, 0 for what the response made.
    """
    CREATE TABLE responses (
        id TEXT NOT NULL PRIMARY KEY,
        owner TEXT NOT NULL,
        status TEXT NOT NULL,
        created_at {int} NOT NULL,
        background INTEGER NOT NULL,
        resumable INTEGER NOT NULL,
        parent TEXT,
        conversation TEXT,
        account TEXT,
        body {blob} NOT NULL,
        input {blob} NOT NULL,
        output {blob} NOT NULL,
        hidden {blob}
    )
    """,
    "CREATE INDEX responses_by_parent ON responses (parent) WHERE parent IS NOT NULL",
    "CREATE INDEX responses_by_age ON responses (created_at, id)",
    """
    CREATE TABLE response_items (
        item TEXT NOT NULL,
        owner TEXT NOT NULL,
        sent INTEGER NOT NULL,
        response TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE,
        PRIMARY KEY (item, owner, sent, response)
    ) {keyed}
    """,
    "CREATE INDEX response_items_by_response ON response_items (response)",
)

_RUNS: Final = (
    # state: queued, running, ending, over. holder: the router that runs or ends it, or has put it
    # back into the queue. fence: goes up whenever somebody takes the run over; who writes with
    # an older one is refused. last_event: -1 before the first.
    """
    CREATE TABLE routers (
        id TEXT NOT NULL PRIMARY KEY,
        until {real} NOT NULL
    )
    """,
    """
    CREATE TABLE runs (
        id TEXT NOT NULL PRIMARY KEY REFERENCES responses (id) ON DELETE CASCADE,
        owner TEXT NOT NULL,
        state TEXT NOT NULL,
        holder TEXT,
        fence {int} NOT NULL,
        last_event {int} NOT NULL,
        queued_at {real} NOT NULL,
        conversation TEXT
    )
    """,
    "CREATE INDEX runs_unfinished ON runs (state, owner, queued_at) WHERE state <> 'over'",
    # Apart from runs, whose rows are rewritten with every batch of events.
    """
    CREATE TABLE run_requests (
        run TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
        data {blob} NOT NULL
    )
    """,
    """
    CREATE TABLE events (
        response TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE,
        first {int} NOT NULL,
        last {int} NOT NULL,
        data {blob} NOT NULL,
        PRIMARY KEY (response, first)
    )
    """,
)

_CONVERSATIONS: Final = (
    # turn_holder: the router whose turn it is; turn: its fencing number, turn_done: the last
    # turn whose items were appended. deleted_at: the items stay until retention takes them.
    # conversation_items.job: which addition a row came from, so that one run twice adds once.
    """
    CREATE TABLE conversations (
        id TEXT NOT NULL PRIMARY KEY,
        owner TEXT NOT NULL,
        created_at {real} NOT NULL,
        metadata {blob} NOT NULL,
        next_position {int} NOT NULL,
        turn {int} NOT NULL,
        turn_done {int} NOT NULL,
        turn_holder TEXT,
        deleted_at {real}
    )
    """,
    "CREATE INDEX conversations_by_owner ON conversations (owner, created_at, id)",
    "CREATE INDEX conversations_deleted ON conversations (deleted_at) WHERE deleted_at IS NOT NULL",
    """
    CREATE TABLE conversation_items (
        conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
        position {int} NOT NULL,
        id TEXT NOT NULL,
        data {blob} NOT NULL,
        hidden TEXT,
        job TEXT,
        PRIMARY KEY (conversation, position)
    )
    """,
    "CREATE INDEX conversation_items_by_id ON conversation_items (id, conversation, position)",
)

_PROMPTS: Final = (
    """
    CREATE TABLE prompts (
        id TEXT NOT NULL PRIMARY KEY,
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        created_at {real} NOT NULL,
        latest {int} NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX prompts_by_name ON prompts (owner, name)",
    "CREATE INDEX prompts_by_owner ON prompts (owner, created_at, id)",
    """
    CREATE TABLE prompt_versions (
        prompt TEXT NOT NULL REFERENCES prompts (id) ON DELETE CASCADE,
        version {int} NOT NULL,
        created_at {int} NOT NULL,
        body {blob} NOT NULL,
        PRIMARY KEY (prompt, version)
    )
    """,
)

_ACCOUNTS: Final = (
    # id begins with the time, so that rows come at the right end of its index. tags: in order,
    # with a comma before, between and after them; '' for none. cost: in nano-USD, NULL where no
    # price is known; tokens and cost of provenance 'cached' are what was saved.
    """
    CREATE TABLE usage (
        id TEXT NOT NULL PRIMARY KEY,
        at {real} NOT NULL,
        request TEXT NOT NULL,
        key TEXT NOT NULL,
        tags TEXT NOT NULL,
        operation TEXT NOT NULL,
        kind TEXT NOT NULL,
        model TEXT NOT NULL,
        served TEXT NOT NULL,
        endpoint TEXT NOT NULL,
        input {int} NOT NULL,
        cached {int} NOT NULL,
        output {int} NOT NULL,
        reasoning {int} NOT NULL,
        cost {int},
        duration {real} NOT NULL,
        first_token {real},
        outcome TEXT NOT NULL,
        error TEXT,
        provenance TEXT NOT NULL,
        response TEXT,
        stream INTEGER NOT NULL
    )
    """,
    "CREATE INDEX usage_by_age ON usage (at)",
    "CREATE INDEX usage_by_key ON usage (key, at)",
    # digest: SHA-256 of the key. previous: the digest of the one before, which is good until
    # previous_until. spec: JSON, what the key may do.
    """
    CREATE TABLE virtual_keys (
        name TEXT NOT NULL PRIMARY KEY,
        digest {blob} NOT NULL,
        previous {blob},
        previous_until {real},
        hint TEXT NOT NULL,
        created_at {real} NOT NULL,
        changed_at {real} NOT NULL,
        expires {real},
        revoked_at {real},
        spec {blob} NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX virtual_keys_by_digest ON virtual_keys (digest)",
    "CREATE INDEX virtual_keys_by_previous ON virtual_keys (previous) WHERE previous IS NOT NULL",
    "CREATE INDEX virtual_keys_by_change ON virtual_keys (changed_at)",
)

_ROLLUPS: Final = (
    # attempts: how many a row stands for; unit: 0 for one attempt, 1 for all alike of an hour,
    # 2 of a day. usage_rollups has one row: whoever rolls up raises its version, see
    # router.state.rollup.
    "ALTER TABLE usage ADD COLUMN attempts {int} NOT NULL DEFAULT 1",
    "ALTER TABLE usage ADD COLUMN unit INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX usage_by_unit ON usage (unit, at)",
    "CREATE TABLE usage_rollups (id INTEGER NOT NULL PRIMARY KEY, version {int} NOT NULL)",
    "INSERT INTO usage_rollups (id, version) VALUES (1, 0)",
)

_COMPACTION: Final = (
    # id: made of the secret, see router.state.compaction_keys. The newest encrypts.
    """
    CREATE TABLE compaction_keys (
        id TEXT NOT NULL PRIMARY KEY,
        created_at {real} NOT NULL,
        secret {blob} NOT NULL
    )
    """,
)

_SESSIONS: Final = (
    # session, agent, parent_agent: as the client named them, '' where it did not and in rows that
    # stand for several attempts.
    "ALTER TABLE usage ADD COLUMN session TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE usage ADD COLUMN agent TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE usage ADD COLUMN parent_agent TEXT NOT NULL DEFAULT ''",
    """
    CREATE INDEX responses_by_conversation ON responses (conversation, created_at, id)
    WHERE conversation IS NOT NULL
    """,
)

_FILES: Final = (
    # The content is in a directory, under the id; ids sort by age. media_type: as the client said.
    """
    CREATE TABLE files (
        id TEXT NOT NULL PRIMARY KEY,
        owner TEXT NOT NULL,
        filename TEXT NOT NULL,
        purpose TEXT NOT NULL,
        bytes {int} NOT NULL,
        created_at {int} NOT NULL,
        expires_at {int},
        media_type TEXT
    )
    """,
    "CREATE INDEX files_by_owner ON files (owner, id)",
    "CREATE INDEX files_by_expiry ON files (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE TABLE file_owners (owner TEXT NOT NULL PRIMARY KEY, added {int} NOT NULL)",
    "CREATE TABLE file_directories (id INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL)",
)

_VECTOR_STORES: Final = (
    # The pieces and their vectors are in an index of their own, see router.vector_stores. deleted:
    # 1 until they are gone from there. expires_days: after last_active_at; expired: 1 once that
    # has passed.
    """
    CREATE TABLE vector_stores (
        id TEXT NOT NULL PRIMARY KEY,
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        description TEXT,
        created_at {int} NOT NULL,
        last_active_at {int} NOT NULL,
        expires_days {int},
        expired INTEGER NOT NULL,
        deleted INTEGER NOT NULL,
        metadata {blob} NOT NULL
    )
    """,
    "CREATE INDEX vector_stores_by_owner ON vector_stores (owner, id)",
    "CREATE INDEX vector_stores_deleted ON vector_stores (deleted) WHERE deleted = 1",
    """
    CREATE INDEX vector_stores_expiring ON vector_stores (expired, last_active_at)
    WHERE expires_days IS NOT NULL
    """,
    """
    CREATE TABLE vector_store_batches (
        id TEXT NOT NULL PRIMARY KEY,
        store TEXT NOT NULL REFERENCES vector_stores (id) ON DELETE CASCADE,
        created_at {int} NOT NULL,
        cancelled INTEGER NOT NULL
    )
    """,
    "CREATE INDEX vector_store_batches_by_store ON vector_store_batches (store)",
    # place: in the list of files, sorts by age. status: as in the API, or 'removing' until the
    # file is gone from the index. holder: the router that ingests it; fence: goes up whenever
    # somebody begins to, or makes what was begun void. not_before: after a failure that passes.
    """
    CREATE TABLE vector_store_files (
        store TEXT NOT NULL REFERENCES vector_stores (id) ON DELETE CASCADE,
        file TEXT NOT NULL,
        owner TEXT NOT NULL,
        place TEXT NOT NULL,
        filename TEXT NOT NULL,
        batch TEXT,
        created_at {int} NOT NULL,
        status TEXT NOT NULL,
        error_code TEXT,
        error_message TEXT,
        usage_bytes {int} NOT NULL,
        attributes {blob} NOT NULL,
        chunk_size {int} NOT NULL,
        chunk_overlap {int} NOT NULL,
        embedder TEXT,
        holder TEXT,
        fence {int} NOT NULL,
        attempts {int} NOT NULL,
        not_before {real} NOT NULL,
        PRIMARY KEY (store, file)
    )
    """,
    "CREATE INDEX vector_store_files_by_place ON vector_store_files (store, place)",
    """
    CREATE INDEX vector_store_files_by_batch ON vector_store_files (batch, place)
    WHERE batch IS NOT NULL
    """,
    """
    CREATE INDEX vector_store_files_unfinished ON vector_store_files (status, owner, place)
    WHERE status IN ('in_progress', 'removing')
    """,
)

_CONTAINERS: Final = (
    # status: running or expired. holder: the router that its sandbox ends with, NULL where any
    # router can reach it; handle: what its runner calls it. minutes: how long it may be idle.
    """
    CREATE TABLE containers (
        id TEXT NOT NULL PRIMARY KEY,
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        status TEXT NOT NULL,
        created_at {real} NOT NULL,
        last_active_at {real} NOT NULL,
        minutes INTEGER NOT NULL,
        memory TEXT NOT NULL,
        holder TEXT,
        handle TEXT NOT NULL
    )
    """,
    "CREATE INDEX containers_by_owner ON containers (owner, created_at, id)",
    "CREATE INDEX containers_by_status ON containers (status, last_active_at)",
    """
    CREATE TABLE container_uploads (
        container TEXT NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
        path TEXT NOT NULL,
        PRIMARY KEY (container, path)
    )
    """,
)

VERSIONS: Final[tuple[tuple[str, ...], ...]] = (
    (*_RESPONSES, *_RUNS, *_CONVERSATIONS, *_PROMPTS),
    _ACCOUNTS,
    _ROLLUPS,
    _COMPACTION,
    _SESSIONS,
    _FILES,
    _VECTOR_STORES,
    _CONTAINERS,
)
"""The statements that lead from each version of the schema to the next, in order."""

SCHEMA_VERSION: Final = len(VERSIONS)
