"""What each API and each dialect of endpoints says on the wire. Pure: no I/O, no clock.

A folder per dialect: ``responses``, ``chat``, ``completions``, ``ollama``, ``messages``
(Anthropic's) and ``embeddings`` (with rerank). In each of them

    schema           the shapes of the API, and what is checked of a request
    decode_request   a client's request as one of the Responses API
    encode_request   a request of the Responses API as an endpoint of this dialect takes it
    decode_stream    an endpoint's bytes as events of the Responses API
    encode_stream    these events as a client of this API reads them

as far as the dialect is spoken in front of the router, behind it, or both. What several of them
need is beside the folders: ``parameters`` (checks, and which are dropped), ``history``,
``system_messages``, ``images``, ``truncation``, ``paging``.
"""
