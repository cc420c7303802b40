"""Containers as sandboxes on this machine."""
