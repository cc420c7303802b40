"""Talking to endpoints: one adapter per dialect, one pooled transport each, and the one place
where foreign errors become the router's own.
"""
