"""The ledger, the metrics and the usage report agree with what endpoints reported, to the token."""

from __future__ import annotations

from router.core.usage_record import NO_TOKENS, Kind, Provenance
from tests.accounting.reconciling import reconciled


async def test_everybody_counts_the_same() -> None:
    result = await reconciled(400)
    assert result.upstream == result.ledger == result.metrics == result.usage
    assert min(result.upstream.values()) > 0
    assert result.attempts == result.asked
    assert result.in_database == len(result.rows)
    assert {row.kind for row in result.rows} == {Kind.FIRST, Kind.RETRY, Kind.CACHE}
    assert {200, 400, 429, 499, 502} <= set(result.answered)


async def test_estimates_are_marked_and_bounded() -> None:
    result = await reconciled(300, seed=1)
    estimated = result.of(Provenance.ESTIMATED)
    used = [row.tokens for row in estimated if row.tokens != NO_TOKENS]
    assert len(used) > 20
    # An answer has at most 27 characters, and there are four to a token; a prompt is estimated by
    # what was reported of others.
    most = max(row.tokens.input for row in result.of(Provenance.REPORTED))
    assert all(2 <= tokens.input <= 2 * most and tokens.output <= 7 for tokens in used)
    assert all(tokens.cached == tokens.reasoning == 0 for tokens in used)
    ended = {row.outcome for row in estimated}
    assert {"ok", "failed", "cancelled", "refused"} == ended
