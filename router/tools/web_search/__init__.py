"""Web search, run by the router for models whose endpoint has none.

Pages that models open are fetched through ``router.fetch.guard``; the search service is the
operator's choice, and may be anywhere.
"""
