"""Real routers are killed while they work, and what they have promised is held against them.

ledger      what a client was promised, and what it has seen
client      speaks HTTP to routers that come and go
load        a mixed load, every answer of which goes into the ledger
audit       holds the routers to the ledger
rows        looks at the database itself, for what no client knows of
campaign    kills and restarts routers under load, then audits
run         the campaign as a command, for as many kills as wanted
"""
