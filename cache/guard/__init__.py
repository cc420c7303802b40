"""What may be matched by meaning, and which near text may not answer for another.

``gate(text)`` says why a text may not be looked up by meaning at all; ``profile(text)`` works out
a text once; ``veto(asked, stored, similarity)`` says why a stored text's answer may not be given
to the asked one, however near their embeddings are. All of it is pure, English only, and would
rather miss. The first call reads the lexicon: call ``warm`` off the hot path.
"""

from __future__ import annotations

from cache.guard.align import align, leftovers
from cache.guard.facts import Veto, facts
from cache.guard.gates import gate
from cache.guard.lexicon import lexicon
from cache.guard.order import order
from cache.guard.permuted import permuted
from cache.guard.profile import Profile, profile
from cache.guard.weighing import doubtful, outweighed

__all__ = ["THRESHOLD", "Profile", "Veto", "gate", "profile", "veto", "warm"]

# The least cosine similarity at which the guard is asked at all, measured with MiniLM.
THRESHOLD = 0.66


def veto(asked: Profile, stored: Profile, similarity: float = 0.0) -> Veto | None:
    """Why the stored text's answer may not be given to the asked one; None where it may. The
    order of the two does not matter. ``similarity`` is the cosine of their embeddings: the guard
    is a little less strict with texts that are very near though they are worded differently.
    """
    if stored.text < asked.text:
        asked, stored = stored, asked
    found = facts(asked, stored)
    if found and not doubtful(found):
        return found
    pairs = align(asked, stored)
    left = leftovers(asked, stored, pairs)
    if left and not doubtful(left):
        return left
    sure = order(asked, stored, pairs) or permuted(asked.text, stored.text)
    doubts = [doubt for doubt in (found, left) if doubt is not None]
    if sure or not doubts or outweighed(asked, stored, pairs, similarity, doubts):
        return sure
    return doubts[0]


def warm() -> None:
    """Reads the lexicon, so that no request waits for it."""
    lexicon()
