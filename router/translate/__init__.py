"""Translation between the Responses API and what endpoints speak: pure, no I/O.

Requests: ``messages`` turns input items into chat messages, ``chat_request`` and
``ollama_request`` make whole bodies of them. Answers: a reader per dialect feeds ``machine``.
"""
