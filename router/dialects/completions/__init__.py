"""Legacy completions, which are passed on."""
