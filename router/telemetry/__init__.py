"""Logs, metrics, tasks that are owned, and the thread for large requests."""
