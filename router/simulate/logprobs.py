"""How sure a simulated model was of each piece of its text: the same text, the same numbers."""

from __future__ import annotations

from typing import Any, Final

from router.simulate.dialogue import pieces
from router.simulate.fields import Fields

__all__ = ["entries", "legacy", "wanted"]

_STEP: Final = 0.125
"""Exact in binary, so that nobody rounds it."""


def wanted(fields: Fields) -> int | None:
    """How many alternatives a request in the style of Chat Completions asks for; None: nothing."""
    top = fields.integer("top_logprobs", 0) or 0
    return top if fields.boolean("logprobs") else None


def entries(text: str, top: int) -> list[dict[str, Any]]:
    """An entry for each piece, with so many alternatives, itself the first among them."""
    made = []
    for piece in pieces(text):
        first = -_STEP * len(piece)
        others = [_entry(piece + "~" * place, first - place) for place in range(top)]
        made.append({**_entry(piece, first), "top_logprobs": others})
    return made


def legacy(said: list[str], top: int, start: int = 0) -> dict[str, Any]:
    """The same for these pieces, in the form of legacy completions; ``start`` is how many
    characters came before them.
    """
    found = [(piece, entries(piece, top)) for piece in said]
    starts = [start + len("".join(said[:place])) for place in range(len(said))]
    return {
        "tokens": said,
        "token_logprobs": [sum(entry["logprob"] for entry in given) for _, given in found],
        "top_logprobs": [
            {one["token"]: one["logprob"] for entry in given for one in entry["top_logprobs"]}
            for _, given in found
        ],
        "text_offset": starts,
    }


def _entry(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}
