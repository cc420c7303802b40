"""File search: the hosted tool ``file_search``, on the router's vector stores.

options    what a request's tool says
tool       what a model is offered, and what becomes of a call
citations  pure: which files a text cites
"""
