"""What is served, one module for each API; each declares its ``FAMILY``."""
