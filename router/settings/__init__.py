"""Configuration: declared once in ``schema``, read from file and environment by ``load``."""
