"""What travels through the router, and the contracts that its rooms share.

exchange            one request's life, and the sink that its answer goes to
plugin_chain        the hooks of plugins, and the chain that calls them
plugin_set          the plugins of one configuration, frozen: a stream ends on those it began on
upstream            the contract of adapters and transports
response_lifecycle  a response's id and builder, its headers, and its storing
key                 a client's key: what it may use, and how much of it
usage_record        one attempt, as the ledger keeps it
"""
