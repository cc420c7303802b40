"""A cache for the answers of language models, exact and semantic; usable on its own.

    request ─▶ canonical request ─▶ keys        cache.request
                                     │
                  exact tier ◀───────┤          cache.core: the store has an entry with that key
                                     │
               semantic tier ◀───────┘          cache.semantic: gate, embedder, index, guard

What there is:

- ``ResponseCache`` (``cache.core``): look up, keep, invalidate, take back.
- ``CacheRequest`` (``cache.request``): what of a request decides its answer, whichever API it came
  by; ``Bypass`` says why it has none.
- ``CachedAnswer`` (``cache.request``): a finished answer, whichever API it was given by.
- ``Controls`` (``cache.controls``): what the configuration and the request allow.
- ``Store`` (``cache.store``): where entries are, in memory, on disk or in Redis (``cache.stores``),
  behind a deadline and a breaker (``cache.guarded``).
- ``Embedder`` (``cache.embedder``), ``VectorIndex`` (``cache.index``), the guard (``cache.guard``)
  and ``SelfCheck`` (``cache.selfcheck``): the parts of the semantic tier.

The router's plugin for it is ``plugins.response_cache``.
"""
