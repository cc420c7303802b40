"""The code interpreter: what a model is offered, and how its answer cites files that code made."""
