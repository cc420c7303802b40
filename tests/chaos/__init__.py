"""Backends fail in every way while clients ask, and what each client has seen is audited.

faults      the ways in which a backend fails
upstream    a backend that fails as it is told, a process of its own
fleet       those processes, and their logs
records     what is known of a run: requests, arrivals, episodes of sickness, reloads
load        clients that ask and keep records
stage       a router, its backends and the load: makes them sick and well, reloads the router
scenarios   what happens when
audit       holds the evidence to what was promised to each client
spread      holds it to what was promised of the traffic: who is left alone, who comes back and how
report      the figures, for people
run         the command, for as long as wanted
"""
