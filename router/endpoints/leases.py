"""Slots that several processes share: the contract between the selector and what shares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from router.endpoints.deployment import Deployment
from router.endpoints.registry import Group

__all__ = ["Leases"]


class Leases(Protocol):
    """Slots that processes share: what this one may use of them (``DeploymentState.lease``)."""

    async def prepare(self, group: Group) -> None:
        """Have a share of all deployments of a group."""
        ...

    async def more(self, deployments: Sequence[Deployment]) -> bool:
        """Have more of those that are full; whether there are any."""
        ...

    def returned(self, deployment: Deployment) -> None:
        """A slot has got free: it may be somebody else's now."""
        ...
