"""Which models an endpoint serves, and under which names."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from router.core.upstream import Listed
from router.settings.model_names import LATEST, Patterns, is_pattern
from router.settings.schema import EndpointSettings

__all__ = ["Catalogue", "serves"]


class Catalogue:
    """What is configured and what was discovered, as one answer to "do you serve this?".

    ``known`` is false until the endpoint has listed its models once; what it listed stays when it
    goes down. Ollama's ``:latest`` may be left out or added anywhere. What it tells of a model
    beside its name is kept too.
    """

    def __init__(self, endpoint: EndpointSettings) -> None:
        self._latest = endpoint.dialect == "ollama"
        self._aliases = {n: own for n, own in endpoint.aliases.items() if not is_pattern(n)}
        self._alias_patterns = Patterns(endpoint.aliases)
        self._alias_names = {*endpoint.aliases, *endpoint.aliases.values()}
        self.discovers = endpoint.models is None
        names = endpoint.models or ()
        self._patterns = tuple(filter(is_pattern, names))
        self._names = self._by_key(name for name in names if name not in self._patterns)
        self._discovered: dict[str, str] = {}
        self._contexts: dict[str, int] = {}
        self._listed: dict[str, bool] = {}
        self._resident: frozenset[str] | None = None
        self.known = False

    def adopt(self, other: Catalogue) -> None:
        """Go on with what was discovered under other settings of the same endpoint."""
        self._discovered, self.known = self._by_key(other._discovered.values()), other.known
        self._contexts, self._listed = other._contexts, other._listed
        self._resident = other._resident

    def update(self, listed: Iterable[str]) -> bool:
        """Take over what the endpoint lists now; True when that changes anything."""
        discovered = self._by_key(listed)
        changed = discovered != self._discovered or not self.known
        self._discovered, self.known = discovered, True
        return changed

    def describe(self, listed: Iterable[Listed], resident: Iterable[str] | None) -> bool:
        """Take over what the endpoint tells of its models: contexts, and what is in memory.

        ``resident`` are those of which it says so beside its list, None where it does not. True
        when a context has changed.
        """
        contexts, loaded = {}, {}
        for model in listed:
            key = self._key(model.name)
            if model.context_length is not None:
                contexts[key] = model.context_length
            if model.loaded is not None:
                loaded[key] = model.loaded
        changed = contexts != self._contexts
        self._contexts, self._listed = contexts, loaded
        self._resident = None if resident is None else frozenset(map(self._key, resident))
        return changed

    def context_of(self, model: str) -> int | None:
        """The context of a model in tokens, where the endpoint tells it."""
        return self._contexts.get(self._key(model))

    def in_memory(self, model: str) -> bool | None:
        """Whether a model was in memory when the endpoint was asked; None where it does not tell.

        Ollama counts those that it has begun to load.
        """
        key = self._key(model)
        loaded = self._listed.get(key)
        if loaded is None and self._resident is not None:
            return key in self._resident
        return loaded

    def resolve(self, model: str) -> str | None:
        """The endpoint's own name for a model that a client asks for; None when not served.

        Names count for more than patterns: an alias, then what the endpoint is known to have, then
        a pattern of aliases, then one of ``models``.
        """
        aliased = self._aliases.get(model) or self._alias_by_pattern(model)
        if aliased is None:
            return self._own(model)
        # An alias is as good as a configured model, until an endpoint that is asked denies it.
        return self._own(aliased) or (None if self.discovers and self.known else aliased)

    def _alias_by_pattern(self, model: str) -> str | None:
        if (self.discovers and not self.known) or self._key(model) in self._names:
            return None  # it may have a model of this very name, or has
        listed = self._discovered.get(self._key(model))
        if listed is not None and (self.discovers or self._admits(model, listed)):
            return None
        found = self._alias_patterns.find(model)
        return None if found is None else found[1]

    def public_names(self) -> list[str]:
        """The names to list to clients: configured, discovered and allowed, and aliases.

        Patterns are none: they stand for names that nobody can list.
        """
        own = {**self._names, **self._allowed()}
        names = dict.fromkeys([*own.values(), *self._aliases])
        return [name for name in names if self.resolve(name) is not None]

    def known_names(self) -> set[str]:
        """Every name, the clients' or the endpoint's, that is more than a match of a pattern."""
        own = {**self._names, **self._allowed()}
        return {*own, *own.values(), *self._alias_names}

    def may_serve(self, pattern: str) -> bool | None:
        """Whether it serves what clients call so, or something that matches this pattern; None
        where it has not said yet.
        """
        names = {*self.known_names(), *self._patterns}
        if self.resolve(pattern) is not None or any(fnmatchcase(n, pattern) for n in names):
            return True
        return None if self.discovers and not self.known else False

    @property
    def serves_any(self) -> bool:
        """Whether there is any name that it would take."""
        return bool(self._patterns or self._alias_patterns or self.public_names())

    def _own(self, name: str) -> str | None:
        key = self._key(name)
        if key in self._names:
            return self._names[key]
        listed = self._discovered.get(key)
        if self.discovers or self._admits(name, listed):
            return listed or (None if self.discovers else name)
        return None

    def _allowed(self) -> dict[str, str]:
        """What was discovered and may be used beside what is configured, by key."""
        return {
            key: name
            for key, name in self._discovered.items()
            if key not in self._names and (self.discovers or self._admits(key, name))
        }

    def _admits(self, *names: str | None) -> bool:
        return any(
            fnmatchcase(name, pattern) for name in names if name for pattern in self._patterns
        )

    def _by_key(self, names: Iterable[str]) -> dict[str, str]:
        by_key: dict[str, str] = {}
        for name in names:
            by_key.setdefault(self._key(name), name)
        return by_key

    def _key(self, name: str) -> str:
        return name.removesuffix(LATEST) if self._latest else name


def serves(catalogues: Iterable[Catalogue], pattern: str) -> bool | None:
    """Whether any of them may serve it; None where none does, and not all have said."""
    answers = {catalogue.may_serve(pattern) for catalogue in catalogues}
    if True in answers:
        return True
    return None if None in answers else False
