"""What makes a request one turn of something longer, and runs in the background.

turns       requests that may belong to something longer, and what is stored of their answers
resolve     what a request refers to: its history, its conversation, its items
runs        submits, claims and executes background and durable runs
execute     what a run does when its time has come
event_log   the sink of a live run: every event is logged before anybody sees it
tail        a run's events from any number on, live or from the log
endings     ends what another router began: cancelled, failed, or back into the queue
live_run    a run of this process
"""
