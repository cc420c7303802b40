"""Which models an endpoint serves, and under which names."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from router.settings.schema import EndpointSettings

__all__ = ["Catalogue"]

_LATEST = ":latest"


class Catalogue:
    """What is configured and what was discovered, as one answer to "do you serve this?".

    ``known`` is false until the endpoint has listed its models once; what it listed stays when it
    goes down.
    """

    def __init__(self, endpoint: EndpointSettings) -> None:
        self._aliases = dict(endpoint.aliases)
        self._latest = endpoint.dialect == "ollama"
        configured = endpoint.models
        self.discovers = configured is None
        names = configured or ()
        self._patterns = tuple(name for name in names if any(c in name for c in "*?["))
        self._names = tuple(name for name in names if name not in self._patterns)
        self._discovered: tuple[str, ...] = ()
        self.known = False

    def update(self, listed: Iterable[str]) -> bool:
        """Take over what the endpoint lists now; True when that changes anything."""
        discovered = tuple(dict.fromkeys(listed))
        changed = discovered != self._discovered or not self.known
        self._discovered, self.known = discovered, True
        return changed

    def resolve(self, model: str) -> str | None:
        """The endpoint's own name for a model that a client asks for; None when not served."""
        name = self._aliases.get(model, model)
        if name in self._names:
            return name
        listed = self._listed(name)
        if self.discovers:
            return listed or (name if model in self._aliases and not self.known else None)
        if any(fnmatchcase(name, pattern) for pattern in self._patterns):
            return listed or name
        return None

    def public_names(self) -> list[str]:
        """The names to list to clients: configured, discovered and allowed, and aliases."""
        names = dict.fromkeys(self._names)
        for name in self._discovered:
            if self.discovers or any(fnmatchcase(name, p) for p in self._patterns):
                names[name] = None
        names.update(dict.fromkeys(self._aliases))
        return list(names)

    def _listed(self, name: str) -> str | None:
        if name in self._discovered:
            return name
        if self._latest and name + _LATEST in self._discovered:
            return name + _LATEST
        return None
