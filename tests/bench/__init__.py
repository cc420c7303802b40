"""The benchmark: Pointsman beside a bare aiohttp proxy, and storing beside not storing.

    run        the command line, and the order of things
    measure    one measurement of one target: load, CPU, memory
    load       the load generator
    bodies     requests that vary
    check      whether an answer that came back is the right one
    mock       the upstream that all targets share; shapes says what it answers
    baseline   the bare proxy, the yardstick
    children   processes: start, pin to a core, end;  procfs reads their CPU and memory
    routers    Pointsman's own processes
    report     medians, ratios, targets, the tables

    stored_run the part about stored responses: its databases, routers and rounds
    stored     storing, chains and runs;  growth measures beside a large database
    databases  makes and drops databases;  fill puts responses into them
    stored_report  rows and targets of that part

README.md says how to run and read it.
"""
