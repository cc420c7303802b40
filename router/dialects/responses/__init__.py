"""The Responses API: what clients ask, what is stored, and endpoints that speak it themselves."""
