"""What one request may be sent to, as far as it is known before and between its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Final

from router.balance.capability import Unmet, missing_features, needs, too_long
from router.balance.overflow import CONTEXT_EXCEEDED
from router.core.key import Key
from router.dialects.responses.decode_stream import unseal
from router.endpoints.registry import Group
from router.endpoints.target import Target
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
        "desperate",
        "group",
        "key",
        "loaded_by",
        "preferred",
        "prints",
        "probes",
        "targets",
        "tried",
        "truncates",
    )

    def __init__(
        self,
        group: Group,
        targets: Sequence[Target],
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
        self.targets = targets
        self.caller = caller
        self.tried: list[Target] = []
        self._dropped: list[Target] = []
        self.preferred: Sequence[Target] = ()
        self.bound = inf
        self.prints: Sequence[bytes] = ()
        self.probes = True
        self.desperate = True
        self.corrected = False
        self.loaded_by: float | None = None

    @property
    def left(self) -> Sequence[Target]:
        """Where it has not been tried."""
        if not self.tried:
            return self.targets
        return [target for target in self.targets if target not in self.tried]

    def drop(self, target: Target) -> None:
        """This one cannot serve it."""
        self._dropped.append(target)
        self.targets = [other for other in self.targets if other is not target]

    def follow(self, group: Group) -> None:
        """Others serve the model now; raises InvalidRequest where none of them can serve this."""
        if self.body is not None:
            targets = able(group, self.body, self.key, truncates=self.truncates)
            self.targets = [target for target in targets if target not in self._dropped]
            self.group = group


def reached(group: Group, key: Key | None) -> Sequence[Target]:
    """Those of a group that may serve a key; raises ModelNotFound where there is none."""
    if key is None or key.endpoints is None:
        return group.targets
    targets = [target for target in group.targets if key.may_reach(target.endpoint.name)]
    if not targets:
        raise no_access(group.model)
    return targets


def able(
    group: Group, body: dict[str, Any], key: Key | None = None, *, truncates: bool = False
) -> Sequence[Target]:
    """Those of a group that can, and may, serve a request. One that ``truncates`` goes where it
    fits whole, and where it fits nowhere, to any of them.

    Raises InvalidRequest, naming what is missing, and ModelNotFound.
    """
    targets = reached(group, key)
    if group.lacks and (needed := needs(body, group.lacks)):
        targets = [target for target in targets if not target.lacks & needed]
        if not targets:
            lacks = [target.lacks for target in reached(group, key)]
            raise _refusal(missing_features(body, group.model, needed, lacks), LACKS_FEATURE)
    if group.contexts:
        size = int(estimate_tokens(longest_prompt_chars(body)) * _SURE)
        fitting = [t for t in targets if t.context is None or size <= t.context]
        if not fitting and truncates:
            return targets
        if not fitting:
            largest = max(t.context or 0 for t in targets)
            raise _refusal(too_long(body, group.model, size, largest), LACKS_CONTEXT)
        targets = fitting
    return targets


def _refusal(unmet: Unmet, code: str) -> InvalidRequest:
    return InvalidRequest(unmet.message, code=code, param=unmet.param)


def issuers(group: Group, body: dict[str, Any]) -> Sequence[Target]:
    """The targets whose account issued encrypted reasoning that a request brings back."""
    items = body.get("input")
    if not isinstance(items, list):
        return ()
    for item in reversed(items):
        blob = item.get("encrypted_content") if isinstance(item, dict) else None
        if isinstance(blob, str) and (account := unseal(blob)[0]) is not None:
            return [t for t in group.targets if t.endpoint.account == account]
    return ()
