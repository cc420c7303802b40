"""Routers that are killed in the middle of everything keep what they have promised."""

from __future__ import annotations

from pathlib import Path

from tests.crash.campaign import Campaign
from tests.support.seed import seed
from tests.support.state import database_url

__all__ = ["database_url"]


async def test_kills_under_load(database_url: str, tmp_path: Path) -> None:
    routers = 1 if database_url.startswith("sqlite") else 2
    campaign = Campaign(database_url, tmp_path, routers=routers, seed=seed(), lease=2.0, workers=12)
    report = await campaign.run([5])
    print("\n".join(report.lines()))
    assert not report.ledger.violations
    assert report.ledger.counts["acknowledged"]
    assert report.ledger.recovery
