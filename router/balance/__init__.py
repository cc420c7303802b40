"""Pure decisions about load: no I/O, no clock, no randomness of its own."""
