"""Search in the tools of a request, so that a model need not be offered all of them.

``catalogue`` is what there is to be searched, and the search by words; ``pattern`` the search by a
regular expression. Both know nothing of an API. ``tool`` is Anthropic's ``tool_search_tool_*``, and
``deferred`` OpenAI's ``tool_search``, as the loop in ``router.tools`` runs them.
"""
