"""The command line: one module per command.

``main`` has the parser and the commands that need no more than a few lines. Each other command has
a module, and so has what ``pointsman check`` says of keys, of the cache and of prices.
"""
