"""Is it well, and if not, whose fault is it?"""

from __future__ import annotations

from grafana.panels import Board, Panel, Query, Row
from grafana.promql import quantile, rate, ratio, total, value

FAILED = 'outcome="failed"'
HITS = 'result="hit"'

BOARD = Board(
    "pointsman-fleet",
    "Pointsman / Fleet overview",
    "Is it well, and if not, whose fault is it?",
    (
        Row(
            "Now",
            (
                Panel(
                    "Requests", "Requests per second, all kinds.", "reqps",
                    [Query(rate("requests_total"))], "stat", 4, 4,
                ),
                Panel(
                    "Failing",
                    "The share of requests that fail for no fault of their own: an endpoint's, or "
                    "the router's.",
                    "percentunit",
                    [Query(ratio(f'({rate("requests_total", where=FAILED)} or vector(0))',
                                 rate("requests_total")))],
                    "stat", 4, 4, ((None, "green"), (0.005, "orange"), (0.05, "red")),
                ),
                Panel(
                    "In flight", "Requests that endpoints work on at this moment.", "short",
                    [Query(total("requests_in_flight"))], "stat", 4, 4,
                ),
                Panel(
                    "Waiting", "Requests that wait for a free slot.", "short",
                    [Query(total("queue_depth"))], "stat", 4, 4,
                    ((None, "green"), (1, "orange"), (50, "red")),
                ),
                Panel(
                    "Endpoints down", "Endpoints that did not answer when last asked.", "short",
                    [Query(f'count({value("endpoint_up")} == 0) or vector(0)')], "stat", 4, 4,
                    ((None, "green"), (1, "red")),
                ),
                Panel(
                    "Spending", "US dollars per hour, as far as prices are known.", "currencyUSD",
                    [Query(f'{rate("cost_usd_total")} * 3600')], "stat", 4, 4,
                ),
            ),
        ),
        Row(
            "Requests",
            (
                Panel(
                    "Requests by outcome",
                    "ok; refused: the request was at fault, or not allowed; failed; cancelled: the "
                    "client left.",
                    "reqps",
                    [Query(rate("requests_total", "outcome"), "{{outcome}}")], "stacked",
                ),
                Panel(
                    "Requests by operation", "What is asked for.", "reqps",
                    [Query(rate("requests_total", "operation"), "{{operation}}")], "stacked",
                ),
                Panel(
                    "Requests by status", "The HTTP status; 499 is a client that left.", "reqps",
                    [Query(rate("requests_total", "status"), "{{status}}")], "stacked",
                ),
            ),
        ),
        Row(
            "What goes wrong",
            (
                Panel(
                    "Errors by fault",
                    "Whose fault it is: the caller's, a policy's (budgets, limits), an upstream's, "
                    "or the router's own.",
                    "reqps",
                    [Query(rate("errors_total", "fault"), "{{fault}}")], "stacked",
                ),
                Panel(
                    "Errors by code", "The code in the error's envelope.", "reqps",
                    [Query(rate("errors_total", "fault, code"), "{{fault}}: {{code}}")],
                ),
                Panel(
                    "Clients that left", "By what they left in the midst of.", "reqps",
                    [Query(rate("client_disconnects_total", "phase"), "{{phase}}")], "stacked",
                ),
            ),
        ),
        Row(
            "How long it takes",
            (
                Panel(
                    "Duration", "From a request's head to its last byte.", "s",
                    [
                        Query(quantile(0.5, "request_duration_seconds"), "p50"),
                        Query(quantile(0.95, "request_duration_seconds"), "p95"),
                        Query(quantile(0.99, "request_duration_seconds"), "p99"),
                    ],
                    exemplars=True,
                ),
                Panel(
                    "Time to first token", "Of streams, from the request's head.", "s",
                    [
                        Query(quantile(0.5, "time_to_first_token_seconds"), "p50"),
                        Query(quantile(0.95, "time_to_first_token_seconds"), "p95"),
                    ],
                    exemplars=True,
                ),
                Panel(
                    "Answered from the cache", "The share of look-ups that hit, by tier.",
                    "percentunit",
                    [Query(ratio(rate("cache_lookups_total", "tier", HITS),
                                 rate("cache_lookups_total", "tier")), "{{tier}}")],
                    most=1,
                ),
            ),
        ),
    ),
)  # fmt: skip
