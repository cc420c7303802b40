"""Tools that the router runs itself, where an endpoint does not. ``web_search`` searches the web,
opens pages and finds text in them.
"""
