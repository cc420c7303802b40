"""Tools that run here: what an endpoint's model calls, and the router does."""
