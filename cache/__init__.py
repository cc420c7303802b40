"""Reserved for the response cache, which is not built yet: this package holds nothing."""
