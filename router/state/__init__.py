"""What the client stores: responses, conversations, prompts, and the log of runs.

One ``Database`` (SQLite or PostgreSQL, chosen by URL) under one class per kind of object. SQL is
written once, in ``Statement``s; everything that belongs together is one job of ``write``.
"""
