"""Several processes that are one router: a supervisor, and workers which it starts.

    supervisor   starts workers, restarts and replaces them, hands on signals
    children     one worker as the supervisor sees it
    accepting    the port: the supervisor accepts connections and hands each to a worker
    link         calls and messages between the supervisor and a worker
    process      this process as a worker: its ends of the two sockets
    shared       what the supervisor keeps for all workers, and does for one at another
    limits       limits and budgets, counted by the supervisor
    slots        slots of endpoints, given to workers by the supervisor
    health       breakers and pauses of endpoints, told by workers to each other
    cache        the store of the response cache, held by the supervisor
    totals       metrics of several processes as those of one

What is not named there every worker does by itself, as several routers on one database do.
"""
