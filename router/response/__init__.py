"""An answer on its way: events of the Responses API, and the builder of the response. Pure.

frame            one event, and event streams as bytes
decoder          what every dialect's decoder does: an endpoint's bytes in, events out
upstream_errors  what an endpoint reports as an error, and whose fault it is
builder          the response under construction, across attempts, and the states of a stream
machine          what is the same whatever the endpoint speaks, with ``output`` and ``items`` for
                 the parts of an answer
replay           a finished answer as a stream again
subscriber       one answer for several clients
tokens           token counts, reported and estimated
"""
