"""Containers, in which code of models runs: whose they are, their files, and what runs them."""
