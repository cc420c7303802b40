"""Who spends what, and what is left."""

from __future__ import annotations

from grafana.panels import Board, Panel, Query, Row
from grafana.promql import increase, rate, value

BUDGET = "{{owner}} per {{period}} ({{unit}})"


BOARD = Board(
    "pointsman-spend",
    "Pointsman / Spend and budgets",
    "Who spends what, and what is left. Whole sums are in the usage ledger.",
    (
        Row(
            "Money",
            (
                Panel(
                    "By key", "US dollars per hour.", "currencyUSD",
                    [Query(f'{rate("cost_usd_total", "key")} * 3600', "{{key}}")], "stacked",
                ),
                Panel(
                    "By model", "US dollars per hour.", "currencyUSD",
                    [Query(f'{rate("cost_usd_total", "model")} * 3600', "{{model}}")], "stacked",
                ),
                Panel(
                    "By endpoint", "US dollars per hour.", "currencyUSD",
                    [Query(f'{rate("cost_usd_total", "endpoint")} * 3600', "{{endpoint}}")],
                    "stacked",
                ),
                Panel(
                    "Spent by key", "In the range of this page.", "currencyUSD",
                    [Query(f"topk(20, {increase('cost_usd_total', 'key')})", "{{key}}")], "bars",
                ),
                Panel(
                    "Spent by model", "In the range of this page.", "currencyUSD",
                    [Query(f"topk(20, {increase('cost_usd_total', 'model')})", "{{model}}")],
                    "bars",
                ),
                Panel(
                    "Without a price",
                    "Attempts whose cost is unknown: it is not in any of the sums. Configure "
                    "accounts.prices. Hosts of one's own are here with "
                    "accounts.report_unpriced: all only.",
                    "reqps",
                    [Query(rate("unpriced_attempts_total", "endpoint, model"),
                           "{{endpoint}} {{model}}")],
                ),
            ),
        ),
        Row(
            "Tokens",
            (
                Panel(
                    "Input by key", "Tokens per second.", "short",
                    [Query(rate("key_tokens_total", "key", 'kind="input"'), "{{key}}")],
                    "stacked", 12,
                ),
                Panel(
                    "Output by key", "Tokens per second.", "short",
                    [Query(rate("key_tokens_total", "key", 'kind="output"'), "{{key}}")],
                    "stacked", 12,
                ),
            ),
        ),
        Row(
            "Budgets and limits",
            (
                Panel(
                    "Left of budgets", "Of those that are in use, the scarcest first.",
                    "percentunit",
                    [Query("bottomk(20, min by (owner, period, unit) "
                           f"({value('budget_left_ratio')}))", BUDGET)],
                    "bars", 12, 8, ((None, "red"), (0.1, "orange"), (0.25, "green")), 1,
                ),
                Panel(
                    "Limits hit", "Requests refused because of a limit or a budget.", "reqps",
                    [Query(rate("limits_hit_total", "key, limit"), "{{key}}: {{limit}}")],
                    "stacked", 12, 8,
                ),
                Panel(
                    "Counting", "Whether what counts limits and budgets answers every router.",
                    "short",
                    [Query(f'min({value("limits_store_up")})')], "stat", 4, 7,
                    ((None, "red"), (1, "green")),
                ),
                Panel(
                    "Passed uncounted",
                    "Requests that passed because of on_down: fail_open, by what did not answer: "
                    "the store of the limits, or the usage ledger.",
                    "reqps",
                    [Query(rate("limits_uncounted_total", "away"), "{{away}}")],
                    "stacked", 20, 7,
                ),
            ),
        ),
    ),
)  # fmt: skip
