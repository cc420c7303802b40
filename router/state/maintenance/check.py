"""Whether a database is whole: what is in it, and what contradicts itself.

Each question is one statement, answered as of one moment, so that a router may go on working.
Nothing is changed, and no more than a few rows are in memory at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import orjson

from router.response.frame import Frame
from router.settings.schema import StateSettings
from router.state.maintenance.access import Access, Damaged, open_access, shown_url
from router.state.migrate import newer
from router.state.schema import ALIVE, SCHEMA_VERSION
from router.state.statement import Statement

__all__ = ["CheckReport", "Problem", "check", "glance"]

_EXAMPLES: Final = 5
_UNFINISHED: Final = "('queued', 'in_progress')"

_COUNTS: Final = Statement(
    f"""
    SELECT 'responses', COUNT(*) FROM responses WHERE status <> 'deleted'
    UNION ALL SELECT 'conversations', COUNT(*) FROM conversations WHERE deleted_at IS NULL
    UNION ALL SELECT 'items', COUNT(*) FROM conversation_items i
        JOIN conversations c ON c.id = i.conversation WHERE c.deleted_at IS NULL
    UNION ALL SELECT 'prompts', COUNT(*) FROM prompts
    UNION ALL SELECT 'runs_' || s.state, COUNT(runs.id)
        FROM (SELECT 'queued' AS state UNION ALL SELECT 'running' UNION ALL SELECT 'ending'
              UNION ALL SELECT 'over') AS s
        LEFT JOIN runs ON runs.state = s.state GROUP BY s.state
    UNION ALL SELECT 'abandoned_runs', COUNT(*) FROM runs
        WHERE state <> 'over' AND state <> 'queued'
        AND NOT {ALIVE.replace("{holder}", "runs.holder")}
    UNION ALL SELECT 'events', COALESCE(SUM(last - first + 1), 0) FROM events
    UNION ALL SELECT 'routers', COUNT(*) FROM routers WHERE until > {{now}}
    UNION ALL SELECT 'usage', COUNT(*) FROM usage
    UNION ALL SELECT 'keys', COUNT(*) FROM virtual_keys WHERE revoked_at IS NULL
    """
)
_OLDEST: Final = Statement("SELECT MIN(created_at) FROM responses WHERE status <> 'deleted'")

_ORPHANS: Final = (
    ("items of missing responses", "response_items", "response", "responses"),
    ("runs of missing responses", "runs", "id", "responses"),
    ("requests of missing runs", "run_requests", "run", "runs"),
    ("events of missing responses", "events", "response", "responses"),
    (
        "conversation items of missing conversations",
        "conversation_items",
        "conversation",
        "conversations",
    ),
    ("versions of missing prompts", "prompt_versions", "prompt", "prompts"),
    ("files of missing vector stores", "vector_store_files", "store", "vector_stores"),
    ("batches of missing vector stores", "vector_store_batches", "store", "vector_stores"),
    ("uploads to missing containers", "container_uploads", "container", "containers"),
)
"""What it is called; the table, its column, and the table where the id should be."""

_CONTRADICTIONS: Final = (
    (
        "runs that are over, and their responses unfinished",
        f"""
        SELECT runs.id FROM runs JOIN responses ON responses.id = runs.id
        WHERE runs.state = 'over' AND responses.status IN {_UNFINISHED}
        """,
    ),
    (
        "runs that are not over, and their responses finished",
        f"""
        SELECT runs.id FROM runs JOIN responses ON responses.id = runs.id
        WHERE runs.state <> 'over' AND responses.status NOT IN {_UNFINISHED}
        """,
    ),
    (
        "unfinished responses that no run will finish",
        f"""
        SELECT id FROM responses WHERE status IN {_UNFINISHED}
        AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = responses.id)
        """,
    ),
    (
        "event logs with gaps or overlaps",
        """
        SELECT DISTINCT response FROM (
            SELECT response, first, last,
                LAG(last, 1, CAST(-1 AS {int}))
                OVER (PARTITION BY response ORDER BY first) AS previous
            FROM events
        ) AS log
        WHERE first <> previous + 1 OR last < first
        """,
    ),
    (
        "event logs that end elsewhere than their runs",
        """
        SELECT id FROM runs WHERE last_event <> COALESCE(
            (SELECT MAX(last) FROM events WHERE events.response = runs.id), -1
        )
        """,
    ),
    (
        "conversations whose next item would replace one",
        """
        SELECT id FROM conversations WHERE next_position <= (
            SELECT MAX(position) FROM conversation_items i WHERE i.conversation = conversations.id
        )
        """,
    ),
    (
        "prompts without their latest version",
        """
        SELECT id FROM prompts WHERE NOT EXISTS (
            SELECT 1 FROM prompt_versions v WHERE v.prompt = prompts.id AND v.version = latest
        )
        """,
    ),
    (
        "rows of usage that no attempt can have",
        """
        SELECT id FROM usage WHERE input < 0 OR cached < 0 OR output < 0 OR reasoning < 0
            OR cost < 0 OR provenance NOT IN ('reported', 'estimated', 'cached')
        """,
    ),
)

_DOCUMENTS: Final = (
    (
        "responses",
        "SELECT id, body, input, output, hidden FROM responses WHERE status <> 'deleted'",
        1,
        (dict, list, list, dict),
    ),
    ("conversations", "SELECT id, metadata FROM conversations", 1, (dict,)),
    (
        "conversation items",
        "SELECT conversation, position, data FROM conversation_items",
        2,
        (dict,),
    ),
    ("versions of prompts", "SELECT prompt, version, body FROM prompt_versions", 2, (dict,)),
    ("requests of runs", "SELECT run, data FROM run_requests", 1, (dict,)),
    ("virtual keys", "SELECT name, spec FROM virtual_keys", 1, (dict,)),
)
"""The rows that hold JSON: how many columns say which row it is, and what the others hold."""

_EVENTS: Final = Statement("SELECT response, first, last, data FROM events")


@dataclass(slots=True)
class Problem:
    """One kind of it: how often, and the first few places."""

    what: str
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, *place: object) -> None:
        """Here is one more."""
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            text = " ".join(map(str, place))
            self.examples.append("".join(c if c.isprintable() else "?" for c in text))


@dataclass(slots=True)
class CheckReport:
    """``version`` is 0 where nothing is there yet; ``size`` in bytes, ``oldest`` in unix seconds.

    ``counts`` is empty where the schema is not the one of this code, or the files are damaged.
    """

    url: str
    version: int = 0
    size: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    oldest: int | None = None
    problems: list[Problem] = field(default_factory=list)


async def check(settings: StateSettings) -> CheckReport:
    """Look at everything. Raises StateError for a database that cannot be used at all."""
    report = CheckReport(shown_url(settings))
    access = open_access(settings)
    if access is None:
        return report
    try:
        await _look(access, report)
    except Damaged as exc:
        report.problems.append(Problem("the file is damaged", 1, [str(exc)]))
    finally:
        await access.close()
    return report


async def glance(settings: StateSettings) -> str:
    """In a few words, whether the database can be used; raises StateError where it cannot."""
    if settings.url.get_secret_value() == "sqlite:///:memory:":
        return "in memory, lost when the router stops"
    access = open_access(settings)
    if access is None:
        return "not there yet, made at the first start"
    try:
        version = await access.version()
    finally:
        await access.close()
    if version > SCHEMA_VERSION:
        raise newer(version)
    if version == 0:
        return "reachable, empty; its tables are made at the first start"
    if version < SCHEMA_VERSION:
        return f"reachable, schema version {version}; {SCHEMA_VERSION} after the next start"
    return f"reachable, schema version {version}"


async def _look(access: Access, report: CheckReport) -> None:
    report.size = await access.size()
    report.version = await access.version()
    if report.version > SCHEMA_VERSION:
        raise newer(report.version)
    if damage := await access.damage():
        report.problems.append(Problem("the file is damaged", len(damage), damage))
        return
    if report.version < SCHEMA_VERSION:
        return
    report.counts = {name: int(count) for name, count in await access.rows(_COUNTS)}
    ((report.oldest,),) = await access.rows(_OLDEST)
    report.problems = [problem for problem in await _problems(access) if problem.count]


async def _problems(access: Access) -> list[Problem]:
    found = []
    for what, table, column, parent in _ORPHANS:
        problem = Problem(what)
        found.append(problem)
        await access.scan(
            Statement(
                f"SELECT {column} FROM {table} WHERE NOT EXISTS "
                f"(SELECT 1 FROM {parent} WHERE {parent}.id = {table}.{column})"
            ),
            partial(_add, problem),
        )
    for what, text in _CONTRADICTIONS:
        problem = Problem(what)
        found.append(problem)
        await access.scan(Statement(text), partial(_add, problem))
    for what, text, keys, kinds in _DOCUMENTS:
        problem = Problem(f"{what} whose JSON is broken")
        found.append(problem)
        await access.scan(Statement(text), partial(_parse, problem, keys, kinds))
    problem = Problem("rows of event logs that hold other events than they say")
    found.append(problem)
    await access.scan(_EVENTS, partial(_count_events, problem))
    return found


def _add(problem: Problem, row: tuple[Any, ...]) -> None:
    problem.add(*row)


def _parse(problem: Problem, keys: int, kinds: tuple[type, ...], row: tuple[Any, ...]) -> None:
    for value, kind in zip(row[keys:], kinds, strict=True):
        if value is not None and not _is_json(value, kind):
            problem.add(*row[:keys])
            return


def _is_json(value: Any, kind: type) -> bool:
    try:
        return isinstance(orjson.loads(value), kind)
    except orjson.JSONDecodeError:
        return False


def _count_events(problem: Problem, row: tuple[Any, ...]) -> None:
    response, first, last, data = row
    try:
        frames = Frame.all_of(data)
        numbers = [frame.json()["sequence_number"] for frame in frames]
    except (ValueError, TypeError, KeyError):
        numbers = []
    if numbers != list(range(first, last + 1)):
        problem.add(response, first)
