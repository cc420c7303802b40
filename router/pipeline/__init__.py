"""The way of a request: plan, choose an endpoint, attempt, translate, record.

run        what becomes of an admitted request; start reading here
failover   which endpoint is tried next, and when no more is
hedging    a second endpoint beside a late first one
attempt    one call to one endpoint
delivery   when the head of a stream leaves, and what may still be taken back
counting   the tokens of a request, without an answer to it
fleet      the endpoints, and everything that decides between them
"""
