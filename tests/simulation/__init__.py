"""A fleet of simulated endpoints in virtual time, to compare policies and to judge defaults."""
