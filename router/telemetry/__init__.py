"""Logs, metrics and the tasks that are owned."""
