"""Finds the plugins of a configuration, puts them in order, and makes them.

A name in ``plugins`` is, in this order: ``package.module:factory``, a bundled plugin, or an entry
point of an installed package in the group ``pointsman.plugins``. Bundled plugins that are not named
stand first, in the order of ``plugins.BUNDLED``.
"""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError

from plugins import BUNDLED
from router.plugin import (
    Plugin,
    PluginClock,
    PluginContext,
    PluginOptionsError,
    PluginServices,
    get_logger,
)
from router.settings.document import Mistake, SettingsError
from router.settings.schema import Settings
from router.settings.words import did_you_mean, in_words

__all__ = ["GROUP", "PluginLoader"]

GROUP: Final = "pointsman.plugins"
"""The group of entry points by which packages offer plugins."""


class PluginLoader:
    """Makes the plugins of configurations. ``services`` are those of the application."""

    def __init__(self, services: PluginServices, clock: PluginClock = time) -> None:
        self._services = services
        self._clock = clock

    def __call__(self, settings: Settings) -> list[Plugin]:
        """The plugins, in order; raises SettingsError naming those that cannot be made.

        Only what belongs to finding a factory, and its options, is the settings' fault. Any other
        error inside of it passes.
        """
        plugins: list[Plugin] = []
        mistakes: list[Mistake] = []
        for wanted in _wanted(settings):
            try:
                plugins.append(self._make(wanted, settings))
            except _NoPlugin as exc:
                mistakes.append(Mistake(wanted.place, None, f"{wanted.name}: {exc}"))
            except SettingsError as exc:
                mistakes += exc.mistakes
        if mistakes:
            raise SettingsError(mistakes)
        return plugins

    def _make(self, wanted: _Wanted, settings: Settings) -> Plugin:
        make = _factory(wanted, settings)
        if not callable(make):
            raise _NoPlugin("it cannot be called")
        if not _takes_context(make):
            raise _NoPlugin("it does not take one argument, the PluginContext")
        context = PluginContext(
            wanted.name,
            settings,
            MappingProxyType(deepcopy(dict(wanted.options))),
            self._services.metrics.plugins,
            get_logger("plugin", plugin=wanted.name),
            self._clock,
            self._services,
        )
        try:
            plugin = make(context)
        except (PluginOptionsError, ValidationError) as exc:
            raise SettingsError(_mistaken_options(wanted.place, exc)) from None
        except SettingsError:
            raise
        except Exception as exc:
            exc.add_note(f"the plugin {wanted.name} could not be made")
            raise
        if not isinstance(plugin, Plugin):
            raise _NoPlugin(f"it made {type(plugin).__name__}, which is not a router.plugin.Plugin")
        return plugin


class _NoPlugin(Exception):
    """What a name of a plugin stands for cannot be used."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A plugin that is to be made, and where the settings name it, if they do."""

    place: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    again: bool = False
    """Whether it has been named before."""


def _wanted(settings: Settings) -> Iterator[_Wanted]:
    """The plugins, in order."""
    named = {entry.plugin for entry in settings.plugins}
    for name, bundled in BUNDLED.items():
        if bundled.enabled(settings) and name not in named:
            yield _Wanted("", name)
    seen: set[str] = set()
    for index, entry in enumerate(settings.plugins):
        yield _Wanted(f"plugins[{index}]", entry.plugin, entry.options, entry.plugin in seen)
        seen.add(entry.plugin)


def _factory(wanted: _Wanted, settings: Settings) -> Any:
    """What makes it; raises _NoPlugin."""
    name = wanted.name
    module, colon, attribute = name.partition(":")
    if colon:
        return _in_module(module, attribute)
    bundled = BUNDLED.get(name)
    if bundled is None:
        found = _installed(name)
        return _in_module(found.module, found.attr)
    if not bundled.enabled(settings):
        raise _NoPlugin(f"this bundled plugin is not in use; {bundled.setting} enables it")
    if wanted.again:
        raise _NoPlugin("this bundled plugin is named twice")
    if wanted.options:
        raise _NoPlugin("this bundled plugin takes no options; it has settings of its own")
    return bundled.make


def _in_module(module: str, attribute: str) -> Any:
    """What is at ``module:attribute``."""
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as exc:
        raise _NoPlugin(f"there is no module '{exc.name}'; is it installed?") from exc
    for step in attribute.split("."):
        found = getattr(found, step, None)
        if found is None:
            raise _NoPlugin(f"the module '{module}' has no '{attribute}'")
    return found


def _installed(name: str) -> EntryPoint:
    """The entry point of this name."""
    known = entry_points(group=GROUP)
    # A package may be found twice, such as beside its own checkout.
    found = {entry.value: entry for entry in known.select(name=name)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        places = " and ".join(sorted(found))
        raise _NoPlugin(f"several installed packages have it; name one of {places}")
    installed = sorted(known.names)
    raise _NoPlugin(
        f"there is no plugin of this name{did_you_mean(name, [*BUNDLED, *installed])}"
        f" (installed: {', '.join(installed) or 'none'}; bundled: {', '.join(BUNDLED)})"
    )


def _takes_context(make: Callable[..., object]) -> bool:
    try:
        signature = inspect.signature(make)
    except ValueError:  # it is not written in Python: nobody can tell
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def _mistaken_options(place: str, exc: PluginOptionsError | ValidationError) -> Iterator[Mistake]:
    """What is wrong with the options, without their values."""
    if isinstance(exc, PluginOptionsError):
        faults = [(exc.field, exc.problem)]
    else:
        errors = exc.errors(include_input=False, include_url=False)
        faults = [(".".join(map(str, error["loc"])), in_words(error)) for error in errors]
    for name, problem in faults:
        yield Mistake(f"{place}.options.{name}".rstrip("."), None, problem)
