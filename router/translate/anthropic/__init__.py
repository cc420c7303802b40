"""Anthropic's Messages API: its requests as requests of the Responses API, and the way back.

``request`` is the entry for requests, with ``history`` for its messages, ``sources`` for images and
documents, ``tools`` and ``thinking`` for what their names say. ``message`` makes a message of a
finished response, ``teller`` the events of one that is being made.
"""
