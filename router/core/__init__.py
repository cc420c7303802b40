"""What travels through the router, and the contracts that its rooms share.

exchange          one request's life, and the sink that its answer goes to
plugin_set        the plugins of one configuration, frozen: a stream ends on those it began on
upstream          the contract of adapters and transports
new_response      ids, times and builders of new responses
persist           storing an answer before its last event leaves
response_headers  the headers of an answer that one client is told
key               a client's key: what it may use, and how much of it
usage_record      one attempt, as the ledger keeps it
worker            the thread that works on large requests, and which requests are large
"""
