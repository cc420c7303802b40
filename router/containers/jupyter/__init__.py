"""Containers as kernels of Jupyter servers and Enterprise Gateways."""
