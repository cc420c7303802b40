"""What makes a request one turn of something longer.

``resolve`` finds what a request refers to (a chain, a conversation, items), ``record`` keeps its
answer, and ``turns`` brings the two together, for requests that are answered at once and for runs.
"""
