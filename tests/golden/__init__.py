"""What goes over the wire, frozen: no change of the code's shape may change a byte of it.

For every API in front and every kind of endpoint behind, whole and streamed, asked for the first
time and answered from the cache: what the client sends, what the endpoint gets, what the client
gets. The traces are data (``traces/``), as is what the endpoints answer (``answers/``).

    scenes      what is asked in every API, and what the endpoint answers
    steps       what is stored and listed, other operations, and what is refused
    surface     operations, settings, commands, metrics and the database, as they are described
    exchange    one request over a socket, and the answer as it came
    trace       a trace as text, in which what differs from run to run has a fixed place-holder
    make        writes the traces anew (``python -m tests.golden.make``): read the diff

``renames.txt`` has the names that are changed on purpose, one ``old -> new`` a line, in the order
in which they are applied to the frozen traces before these are compared.
"""
