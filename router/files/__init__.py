"""Uploaded files: where they are kept, the text that is in them, and files in requests."""
