"""How the endpoints are, and how work is spread among them."""

from __future__ import annotations

from grafana.panels import Board, Panel, Query, Row
from grafana.promql import quantile, rate, ratio, total, value

AT = "{{endpoint}}"
AT_MODEL = "{{endpoint}} {{model}}"

BOARD = Board(
    "pointsman-endpoints",
    "Pointsman / Endpoints and balance",
    "How the endpoints are, and how work is spread among them.",
    (
        Row(
            "Health",
            (
                Panel(
                    "Up", "Whether the endpoint answered when last asked.", "short",
                    [Query(f'min by (endpoint) ({value("endpoint_up")})', AT)], "stat", 8, 5,
                    ((None, "red"), (1, "green")),
                ),
                Panel(
                    "Breakers",
                    "The breaker of a model at an endpoint: closed (0), half-open (1), open (2).",
                    "short",
                    [Query(f'max by (endpoint, model) ({value("breaker_state")})', AT_MODEL)],
                    height=5, most=2,
                ),
                Panel(
                    "Left alone", "Models that get no requests, by reason.", "short",
                    [Query(total("models_left_alone", "endpoint, reason"),
                           "{{endpoint}}: {{reason}}")],
                    height=5,
                ),
                Panel(
                    "Attempts by result",
                    "ok, the error's code, or cancelled: another endpoint was sooner.", "reqps",
                    [Query(rate("upstream_attempts_total", "endpoint, result"),
                           "{{endpoint}}: {{result}}")],
                ),
                Panel(
                    "Failing attempts", "The share of an endpoint's attempts that fail.",
                    "percentunit",
                    [Query(ratio(rate("upstream_attempts_total", "endpoint",
                                      'result!~"ok|cancelled"'),
                                 rate("upstream_attempts_total", "endpoint")), AT)],
                    most=1,
                ),
                Panel(
                    "Models in memory", "Where the endpoint tells.", "short",
                    [Query(f'max by (endpoint, model) ({value("model_loaded")})', AT_MODEL)],
                    most=1,
                ),
            ),
        ),
        Row(
            "Balance",
            (
                Panel(
                    "Requests by endpoint", "Attempts per second.", "reqps",
                    [Query(rate("upstream_attempts_total", "endpoint"), AT)], "stacked",
                ),
                Panel(
                    "In flight", "Requests that an endpoint works on.", "short",
                    [Query(total("requests_in_flight", "endpoint"), AT)], "stacked",
                ),
                Panel(
                    "Slots in use", "The share of a model's slots at an endpoint that is taken.",
                    "percentunit",
                    [Query(ratio(total("requests_in_flight", "endpoint, model"),
                                 total("slots", "endpoint, model")), AT_MODEL)],
                    most=1,
                ),
            ),
        ),
        Row(
            "Waiting",
            (
                Panel(
                    "Queue", "Requests that wait for a free slot.", "short",
                    [Query(total("queue_depth", "instance"), "{{instance}}")],
                ),
                Panel(
                    "Time in the queue", "Of the requests that had to wait.", "s",
                    [
                        Query(quantile(0.5, "queue_wait_seconds"), "p50"),
                        Query(quantile(0.95, "queue_wait_seconds"), "p95"),
                    ],
                ),
                Panel(
                    "Requests that had to wait", "Per second.", "reqps",
                    [Query(rate("queue_wait_seconds_count"), "waited")],
                ),
            ),
        ),
        Row(
            "Tools",
            (
                Panel(
                    "Tool calls", "Calls of tools that the router ran itself.", "reqps",
                    [Query(rate("tool_calls_total", "tool, server"), "{{tool}}: {{server}}")],
                    "stacked",
                ),
                Panel(
                    "Failing tool calls", "By the code of the error.", "reqps",
                    [Query(rate("tool_calls_total", "tool, server, outcome", 'outcome!="ok"'),
                           "{{tool}}: {{server}}: {{outcome}}")],
                ),
                Panel(
                    "Time of tool calls", "How long a call took.", "s",
                    [
                        Query(quantile(0.5, "tool_seconds", "tool"), "{{tool}} p50"),
                        Query(quantile(0.95, "tool_seconds", "tool"), "{{tool}} p95"),
                    ],
                ),
            ),
        ),
        Row(
            "Vector stores",
            (
                Panel(
                    "Ingested files", "By how their ingestion ended.", "reqps",
                    [Query(rate("vector_store_files_total", "result"), "{{result}}")],
                ),
                Panel(
                    "Files that wait", "In the database, and not ingested yet.", "short",
                    [Query(f'max ({value("vector_store_files_waiting")})', "files")],
                ),
                Panel(
                    "Time of an ingestion", "How long a file took.", "s",
                    [
                        Query(quantile(0.5, "vector_store_ingestion_seconds"), "p50"),
                        Query(quantile(0.95, "vector_store_ingestion_seconds"), "p95"),
                    ],
                ),
                Panel(
                    "Searches", "By how they ended.", "reqps",
                    [Query(rate("vector_store_searches_total", "result"), "{{result}}")],
                    width=12,
                ),
                Panel(
                    "Time of a search", "How long it took.", "s",
                    [
                        Query(quantile(0.5, "vector_store_search_seconds"), "p50"),
                        Query(quantile(0.95, "vector_store_search_seconds"), "p95"),
                    ],
                    width=12,
                ),
            ),
        ),
        Row(
            "Compaction",
            (
                Panel(
                    "Compacted conversations", "Summaries that the router asked a model for.",
                    "reqps",
                    [Query(rate("compactions_total", "cause, result"), "{{cause}}: {{result}}")],
                    "stacked", width=24,
                ),
            ),
        ),
        Row(
            "Trying again",
            (
                Panel(
                    "Attempts by kind", "Why they were made.", "reqps",
                    [Query(rate("attempts_total", "kind"), "{{kind}}")], "stacked",
                ),
                Panel(
                    "Outcome of attempts", "As they are booked.", "reqps",
                    [Query(rate("attempts_total", "kind, outcome"), "{{kind}}: {{outcome}}")],
                ),
                Panel(
                    "Retries denied",
                    "Requests that failed without a further attempt: the retry budget was spent.",
                    "reqps",
                    [Query(rate("retries_denied_total"), "denied")],
                ),
                Panel(
                    "Hedges", "Second requests for late streams: won, lost or failed.", "reqps",
                    [Query(rate("hedges_total", "result"), "{{result}}")], "stacked",
                ),
                Panel(
                    "Fallbacks", "Requests for a model that went to another one.", "reqps",
                    [Query(rate("fallbacks_total", "model, fallback"), "{{model}} → {{fallback}}")],
                ),
                Panel(
                    "Reasoning dropped",
                    "Reasoning items that the endpoint could not read, by endpoint.", "short",
                    [Query(rate("reasoning_dropped_total", "endpoint"), AT)],
                ),
            ),
        ),
    ),
)  # fmt: skip
