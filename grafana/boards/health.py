"""Background runs, the database, the ledger, and the routers' own processes."""

from __future__ import annotations

from grafana.panels import Board, Panel, Query, Row
from grafana.promql import quantile, rate, total, value

HERE = "{{instance}}"
QUEUED = value("runs", 'state="queued"')
REFUSED = value("reloads_total", 'result="refused"')

BOARD = Board(
    "pointsman-health",
    "Pointsman / Runs, store and process health",
    "Background runs, the database, the ledger, and the routers' own processes.",
    (
        Row(
            "Background runs",
            (
                Panel(
                    "Runs", "Running here, and queued in the database.", "short",
                    [
                        Query(total("runs", where='state="running"'), "running"),
                        Query(f"max({QUEUED})", "queued"),
                    ],
                    width=12,
                ),
                Panel(
                    "Runs ended by others",
                    "Requeued or failed because their router was gone or drained, or cancelled.",
                    "reqps",
                    [Query(rate("runs_ended_total", "result"), "{{result}}")], "stacked", 12,
                ),
            ),
        ),
        Row(
            "The store",
            (
                Panel(
                    "Up", "Whether the database answers.", "short",
                    [Query(f'min({value("state_up")})')], "stat", 4, 7,
                    ((None, "red"), (1, "green")),
                ),
                Panel(
                    "Operations", "Reads and writes per second.", "ops",
                    [Query(rate("state_operations_total", "kind, result"), "{{kind}}: {{result}}")],
                    width=10,
                ),
                Panel(
                    "Time of operations", "95 % are quicker.", "s",
                    [Query(quantile(0.95, "state_operation_seconds", "kind"), "{{kind}}")],
                    width=10,
                ),
            ),
        ),
        Row(
            "The ledger",
            (
                Panel(
                    "Rows that wait", "In the journal, not yet in the database.", "short",
                    [Query(total("ledger_waiting_rows", "instance"), HERE)],
                ),
                Panel(
                    "Journal", "Its size.", "bytes",
                    [Query(total("ledger_journal_bytes", "instance"), HERE)],
                ),
                Panel(
                    "Rows lost", "Rows that could not be kept.", "short",
                    [Query(rate("ledger_lost_rows_total", "instance"), HERE)],
                ),
            ),
        ),
        Row(
            "The process",
            (
                Panel(
                    "Event loop lag", "How late the event loop is: 99 % of looks were sooner.",
                    "s",
                    [Query(quantile(0.99, "event_loop_lag_seconds", "instance"), HERE)],
                ),
                Panel(
                    "CPU", "Seconds per second: 1 is a whole core.", "short",
                    [Query(rate("process_cpu_seconds_total", "instance"), HERE)],
                ),
                Panel(
                    "Memory", "What is resident, and what is reserved.", "bytes",
                    [
                        Query(total("process_resident_memory_bytes", "instance"), HERE),
                        Query(total("process_virtual_memory_bytes", "instance"),
                              "{{instance}} reserved"),
                    ],
                ),
                Panel(
                    "Open requests", "Requests that are not over, and open WebSockets.", "short",
                    [
                        Query(total("requests_open", "instance"), HERE),
                        Query(total("websockets_open", "instance"), "WebSockets of " + HERE),
                    ],
                ),
                Panel(
                    "Open files",
                    "Sockets included, and how many there may be; and how many times a second "
                    "none could be opened.",
                    "short",
                    [
                        Query(total("process_open_fds", "instance"), HERE),
                        Query(total("process_max_fds", "instance"), "{{instance}} at most"),
                        Query(rate("file_descriptors_exhausted_total", "instance"),
                              "{{instance}} refused, per second"),
                    ],
                ),
                Panel(
                    "Folded label sets",
                    "New label sets that were counted under 'other': a metric has as many as it "
                    "may have.",
                    "short",
                    [Query(rate("series_folded_total", "metric"), "{{metric}}")],
                ),
            ),
        ),
        Row(
            "What runs",
            (
                Panel(
                    "Versions", "How many routers run which.", "short",
                    [Query(f'count by (version, python) ({value("build_info")})',
                           "{{version}}, Python {{python}}")],
                    "stat", 8, 4,
                ),
                Panel(
                    "Up since", "How long the routers have been running.", "s",
                    [Query(f'time() - {value("process_start_time_seconds")}', HERE)], "stat", 8, 4,
                ),
                Panel(
                    "Configured since", "How long the configuration has been in force.", "s",
                    [Query(f'time() - {value("configuration_timestamp_seconds")}', HERE)],
                    "stat", 4, 4,
                ),
                Panel(
                    "Reloads refused", "In the range of this page.", "short",
                    [Query(f"sum(increase({REFUSED}[$__range]))")],
                    "stat", 4, 4, ((None, "green"), (1, "orange")),
                ),
            ),
        ),
    ),
)  # fmt: skip
