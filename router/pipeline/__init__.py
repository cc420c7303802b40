"""The way of a request: plan, choose an endpoint, attempt, translate, record.

run        what becomes of an admitted request; start reading here
failover   which endpoint is tried next, and when no more is
hedging    a second endpoint beside a late first one; the fleet, put together
work       what an attempt is made of, and what becomes of its answer
attempt    one call to one endpoint
delivery   when what it brings is passed on
counting   the tokens of a request, without an answer to it
"""
