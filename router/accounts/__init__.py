"""Who used what, what it cost, and what they may use: pure, time is handed in.

    key       a client's key: what it may use, and its budgets and limits
    row       one attempt, as the ledger keeps it
    prices    what tokens cost
    limits    so much per minute, and so much at once
    budgets   so much in a day, a week, a month or altogether

What keeps these between requests is in ``router.books``.
"""
