"""What travels through the router, and the contracts that its rooms share.

exchange            one request's life, and the sink that its answer goes to
plugin_hooks        what a plugin can be
plugin_chain        the plugins of one configuration, frozen: a stream ends on those it began on
plugin_sets         those of this configuration, and of the ones before that are in use
upstream            the contract of adapters and transports
response_lifecycle  a response's id and builder, its headers, and its storing
key                 a client's key: what it may use, and how much of it
usage_record        one attempt, as the ledger keeps it
"""
