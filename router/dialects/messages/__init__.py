"""Anthropic's Messages API: its requests as requests of the Responses API, and the way back.

``decode_request`` is the entry for requests, with ``decode_history`` for their messages,
``content`` for images and documents, ``tools`` and ``thinking`` for what their names say.
``encode_response`` makes a message of a finished response, ``encode_stream`` the events of one that
is being made.
"""
