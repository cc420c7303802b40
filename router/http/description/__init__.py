"""One description of everything that is served, as an OpenAPI 3.1 document and as a page.

    schema      JSON Schemas in few words
    parts       what a family of operations is made of: operations, parameters, bodies, answers
    errors      error envelopes, one for each API, and which status says what
    headers     headers of requests and answers
    families    one module for each API; each declares ``FAMILY``
    document    puts them together
    api         serves both

It is declared beside the routes, not made from them: ``tests/description`` holds that every route
is described, and nothing else, and that the answers of a running router are as described.
"""
