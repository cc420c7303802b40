"""Chat Completions: the clients' API, and the dialect of most engines."""
