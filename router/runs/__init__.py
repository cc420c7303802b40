"""Background and durable runs: queued, run once at a time, logged, resumed, cancelled, recovered.

manager    submits, claims and executes runs; what the rest of the router talks to
log        the sink of a live run: every event is logged before anybody sees it
tail       sends a run's events from any number on, live or from the log
endings    ends what somebody else has begun: cancelled, failed, or back into the queue
"""
