"""The benchmark: Switchyard beside a bare aiohttp proxy, in one run, on two cores.

    run        the command line, and the order of things
    measure    one measurement of one target: load, CPU, memory
    load       the load generator
    bodies     requests that vary
    check      whether an answer that came back is the right one
    mock       the upstream that all targets share; shapes says what it answers
    baseline   the bare proxy, the yardstick
    children   processes: start, pin to a core, end;  procfs reads their CPU and memory
    report     medians, ratios, targets, the table

README.md says how to run and read it.
"""
