"""Real engines behind the router, as far as a laptop can run them."""
