"""What the response cache answers, what it saves, and whether it can be trusted."""

from __future__ import annotations

from grafana.panels import Board, Panel, Query, Row
from grafana.promql import quantile, rate, ratio, total, value

HITS = 'result="hit"'

BOARD = Board(
    "pointsman-cache",
    "Pointsman / Cache and savings",
    "What the response cache answers, what it saves, and whether it can be trusted.",
    (
        Row(
            "What it answers",
            (
                Panel(
                    "Hits", "The share of look-ups that hit, by tier.", "percentunit",
                    [Query(ratio(rate("cache_lookups_total", "tier", HITS),
                                 rate("cache_lookups_total", "tier")), "{{tier}}")],
                    most=1,
                ),
                Panel(
                    "Look-ups", "By tier and result.", "reqps",
                    [Query(rate("cache_lookups_total", "tier, result"), "{{tier}}: {{result}}")],
                ),
                Panel(
                    "Bypasses", "Requests that passed the cache by, by reason.", "reqps",
                    [Query(rate("cache_bypasses_total", "reason"), "{{reason}}")], "stacked",
                ),
                Panel(
                    "Shared calls", "Requests answered by a call that another one had made.",
                    "reqps",
                    [Query(rate("cache_shared_total"), "shared")],
                ),
                Panel(
                    "Kept", "Answers handed to the store: kept or refused.", "reqps",
                    [Query(rate("cache_stored_total", "result"), "{{result}}")], "stacked",
                ),
                Panel(
                    "Look-up time", "95 % are quicker.", "s",
                    [Query(quantile(0.95, "cache_lookup_seconds", "tier"), "{{tier}}")],
                ),
            ),
        ),
        Row(
            "What it saves",
            (
                Panel(
                    "Tokens saved", "Per second, by kind.", "short",
                    [Query(rate("cache_saved_tokens_total", "kind"), "{{kind}}")], "stacked", 12,
                ),
                Panel(
                    "Money saved", "US dollars per hour, as far as prices are known.",
                    "currencyUSD",
                    [Query(f'{rate("cache_saved_usd_total", "model")} * 3600', "{{model}}")],
                    "stacked", 12,
                ),
            ),
        ),
        Row(
            "Whether it can be trusted",
            (
                Panel(
                    "False hits",
                    "The share of semantic hits that are wrong, by the self-check: the estimate, "
                    "and the bounds between which it is with 95 % certainty.",
                    "percentunit",
                    [Query(f'max by (bound) ({value("cache_false_hit_ratio")})', "{{bound}}")],
                ),
                Panel(
                    "Compared", "Semantic hits that were compared with a fresh answer.", "reqps",
                    [Query(rate("cache_comparisons_total", "result"), "{{result}}")], "stacked",
                ),
                Panel(
                    "Switched off", "Namespaces without the semantic tier: too many wrong hits.",
                    "short",
                    [Query(total("cache_semantic_off"), "off")], "stat",
                    steps=((None, "green"), (1, "red")),
                ),
                Panel(
                    "Vetoes", "Questions that are near and yet another one, by reason.", "reqps",
                    [Query(rate("cache_vetoes_total", "reason"), "{{reason}}")], "stacked",
                ),
                Panel(
                    "Not judged", "Questions that the semantic tier left alone, by reason.",
                    "reqps",
                    [Query(rate("cache_semantic_skips_total", "reason"), "{{reason}}")], "stacked",
                ),
                Panel(
                    "Similarity of hits", "Half of the hits are less similar.", "short",
                    [
                        Query(quantile(0.5, "cache_similarity"), "p50"),
                        Query(quantile(0.05, "cache_similarity"), "p5"),
                    ],
                    most=1,
                ),
            ),
        ),
        Row(
            "The store",
            (
                Panel(
                    "Up", "Whether the store answers.", "short",
                    [Query(f'min({value("cache_store_up")})')], "stat", 4, 7,
                    ((None, "red"), (1, "green")),
                ),
                Panel(
                    "Bytes", "What is in the store, and what may be.", "bytes",
                    [
                        Query(f'max({value("cache_bytes")})', "held"),
                        Query(f'max({value("cache_max_bytes")})', "at most"),
                    ],
                ),
                Panel(
                    "Entries", "Those in the store, and those that had to make room.", "short",
                    [
                        Query(f'max({value("cache_entries")})', "held"),
                        Query(f'max({value("cache_evicted")})', "evicted"),
                    ],
                    width=6,
                ),
                Panel(
                    "Errors", "Times that the store did not answer as it should.", "reqps",
                    [Query(rate("cache_store_errors_total", "kind"), "{{kind}}")], "stacked", 6,
                ),
            ),
        ),
    ),
)  # fmt: skip
