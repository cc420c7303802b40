"""What the router fetches because a client says so: through one guard, with its limits."""
