"""What one request may be sent to, as far as it is known before and between its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Final

from router.balance.capability import Unmet, missing_features, needs, too_long
from router.balance.overflow import CONTEXT_EXCEEDED
from router.core.key import Key
from router.dialects.responses.decode_stream import unseal
from router.endpoints.deployment import Deployment
from router.endpoints.registry import Group
from router.errors import InvalidRequest, no_access
from router.response.tokens import estimate_tokens, longest_prompt_chars

__all__ = ["LACKS_CONTEXT", "LACKS_FEATURE", "Plan", "able", "issuers", "reached"]

LACKS_FEATURE: Final = "unsupported_feature"
LACKS_CONTEXT: Final = CONTEXT_EXCEEDED

_SURE: Final = 0.8
"""What of an estimate of tokens is sure: text of more than five characters to a token is rare."""


class Plan:
    """The candidates for one request and one model.

    ``tried`` are those that failed it. ``body`` is the request, where the plan is to follow changes
    of who serves the model, ``key`` the caller's, where it has one. ``preferred`` are wanted first,
    with at most ``bound`` more load than the least loaded; ``prints`` are what the request is
    recognised by the next time. With ``probes`` it may try a half-open breaker, ``desperate`` it
    goes to what is known to be sick where nothing else is left. ``corrected``: the last refusal
    told another context of its model than was known. ``loaded_by`` is until when the request waits
    for what endpoints load of their own accord, on the monotonic clock; None: it does not yet.
    ``truncates`` as for ``able``.
    """

    __slots__ = (
        "_dropped",
        "body",
        "bound",
        "caller",
        "corrected",
        "deployments",
        "desperate",
        "group",
        "key",
        "loaded_by",
        "preferred",
        "prints",
        "probes",
        "tried",
        "truncates",
    )

    def __init__(
        self,
        group: Group,
        deployments: Sequence[Deployment],
        caller: str,
        body: dict[str, Any] | None = None,
        key: Key | None = None,
        *,
        truncates: bool = False,
    ) -> None:
        self.group = group
        self.truncates = truncates
        self.key = key
        self.body = body
        self.deployments = deployments
        self.caller = caller
        self.tried: list[Deployment] = []
        self._dropped: list[Deployment] = []
        self.preferred: Sequence[Deployment] = ()
        self.bound = inf
        self.prints: Sequence[bytes] = ()
        self.probes = True
        self.desperate = True
        self.corrected = False
        self.loaded_by: float | None = None

    @property
    def left(self) -> Sequence[Deployment]:
        """Where it has not been tried."""
        if not self.tried:
            return self.deployments
        return [deployment for deployment in self.deployments if deployment not in self.tried]

    def drop(self, deployment: Deployment) -> None:
        """This one cannot serve it."""
        self._dropped.append(deployment)
        self.deployments = [other for other in self.deployments if other is not deployment]

    def follow(self, group: Group) -> None:
        """Others serve the model now; raises InvalidRequest where none of them can serve this."""
        if self.body is not None:
            deployments = able(group, self.body, self.key, truncates=self.truncates)
            self.deployments = [
                deployment for deployment in deployments if deployment not in self._dropped
            ]
            self.group = group


def reached(group: Group, key: Key | None) -> Sequence[Deployment]:
    """Those of a group that may serve a key; raises ModelNotFound where there is none."""
    if key is None or key.endpoints is None:
        return group.deployments
    deployments = [
        deployment for deployment in group.deployments if key.may_reach(deployment.endpoint.name)
    ]
    if not deployments:
        raise no_access(group.model)
    return deployments


def able(
    group: Group, body: dict[str, Any], key: Key | None = None, *, truncates: bool = False
) -> Sequence[Deployment]:
    """Those of a group that can, and may, serve a request. One that ``truncates`` goes where it
    fits whole, and where it fits nowhere, to any of them.

    Raises InvalidRequest, naming what is missing, and ModelNotFound.
    """
    deployments = reached(group, key)
    if group.lacks and (needed := needs(body, group.lacks)):
        deployments = [deployment for deployment in deployments if not deployment.lacks & needed]
        if not deployments:
            lacks = [deployment.lacks for deployment in reached(group, key)]
            raise _refusal(missing_features(body, group.model, needed, lacks), LACKS_FEATURE)
    if group.contexts:
        size = int(estimate_tokens(longest_prompt_chars(body)) * _SURE)
        fitting = [t for t in deployments if t.context is None or size <= t.context]
        if not fitting and truncates:
            return deployments
        if not fitting:
            largest = max(t.context or 0 for t in deployments)
            raise _refusal(too_long(body, group.model, size, largest), LACKS_CONTEXT)
        deployments = fitting
    return deployments


def _refusal(unmet: Unmet, code: str) -> InvalidRequest:
    return InvalidRequest(unmet.message, code=code, param=unmet.param)


def issuers(group: Group, body: dict[str, Any]) -> Sequence[Deployment]:
    """The deployments whose account issued encrypted reasoning that a request brings back."""
    items = body.get("input")
    if not isinstance(items, list):
        return ()
    for item in reversed(items):
        blob = item.get("encrypted_content") if isinstance(item, dict) else None
        if isinstance(blob, str) and (account := unseal(blob)[0]) is not None:
            return [t for t in group.deployments if t.endpoint.account == account]
    return ()
