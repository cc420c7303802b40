"""How long answers take, and of how many tokens they are."""

from __future__ import annotations

from grafana.panels import Board, Panel, Query, Row
from grafana.promql import average, quantile, rate, ratio

BOARD = Board(
    "pointsman-latency",
    "Pointsman / Latency and tokens",
    "How long answers take, and of how many tokens they are.",
    (
        Row(
            "Until the first token",
            (
                Panel(
                    "Time to first token by model", "95 % are quicker.", "s",
                    [Query(quantile(0.95, "time_to_first_token_seconds", "model"), "{{model}}")],
                    exemplars=True,
                ),
                Panel(
                    "Time to first token by endpoint", "95 % are quicker.", "s",
                    [Query(quantile(0.95, "time_to_first_token_seconds", "endpoint"),
                           "{{endpoint}}")],
                    exemplars=True,
                ),
                Panel(
                    "How it is distributed", "Streams per second, by time to first token.", "s",
                    [Query(rate("time_to_first_token_seconds_bucket", "le"), "{{le}}")],
                    "heatmap",
                ),
            ),
        ),
        Row(
            "From there on",
            (
                Panel(
                    "Time between tokens", "The mean of a stream; 95 % of streams are quicker.",
                    "s",
                    [Query(quantile(0.95, "time_between_tokens_seconds", "model"), "{{model}}")],
                ),
                Panel(
                    "Tokens per second of a stream", "On average, by endpoint.", "short",
                    [Query(f'1 / ({average("time_between_tokens_seconds", "endpoint")} > 0)',
                           "{{endpoint}}")],
                ),
                Panel(
                    "Duration by operation", "95 % are quicker.", "s",
                    [Query(quantile(0.95, "request_duration_seconds", "operation"),
                           "{{operation}}")],
                    exemplars=True,
                ),
            ),
        ),
        Row(
            "Here, not there",
            (
                Panel(
                    "Router overhead",
                    "What requests spent here: neither waiting for a slot nor for an endpoint.",
                    "s",
                    [
                        Query(quantile(0.5, "overhead_seconds"), "p50"),
                        Query(quantile(0.95, "overhead_seconds"), "p95"),
                        Query(quantile(0.99, "overhead_seconds"), "p99"),
                    ],
                    width=12,
                ),
                Panel(
                    "Router overhead by operation", "On average.", "s",
                    [Query(average("overhead_seconds", "operation"), "{{operation}}")],
                    width=12,
                ),
            ),
        ),
        Row(
            "Tokens",
            (
                Panel(
                    "Tokens by kind",
                    "cached is part of input, reasoning of output.", "short",
                    [Query(rate("tokens_total", "kind"), "{{kind}}")],
                ),
                Panel(
                    "Output tokens by model", "Per second.", "short",
                    [Query(rate("tokens_total", "model", 'kind="output"'), "{{model}}")],
                    "stacked",
                ),
                Panel(
                    "Estimated", "The share of tokens that no endpoint reported.", "percentunit",
                    [Query(ratio(
                        "(" + rate("tokens_total", where='provenance="estimated"')
                        + " or vector(0))",
                        rate("tokens_total"),
                    ), "estimated")],
                    most=1,
                ),
            ),
        ),
    ),
)  # fmt: skip
