"""Codecs and shapes of what goes over the wire: pure, no I/O.

``sse`` and ``ndjson`` cut byte streams, ``frame`` is one event, ``responses`` validates a request
of the Responses API and echoes it. ``stored_items``, ``conversations``, ``prompts`` and ``paging``
are the shapes of what is stored.
"""
