"""Takes over another configuration while the router runs: wholly, or not at all.

    look for what needs a restart, make what is new   every mistake is found, nothing is touched
    start the new plugins                             what still may fail
    apply                                             in one step, without a pause
    drain the old                                     requests end on the plugins they began on

Endpoints that stay keep what is known of them, and what they work on.

``Following`` keeps a running router at what its configuration's file says.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from router.core.plugin_chain import PluginChain
from router.core.plugin_hooks import Plugin
from router.core.plugin_sets import PluginSets
from router.endpoints.registry import Prepared
from router.pipeline.hedging import Fleet
from router.settings.changes import changes, needing_restart
from router.settings.document import Mistake, SettingsError
from router.settings.schema import Settings
from router.settings.watch import ConfigFile
from router.telemetry.log import configure, get_logger
from router.telemetry.metrics import Metrics

__all__ = ["Following", "MakePlugins", "Reloaded", "Reloader"]

MakePlugins = Callable[[Settings], Sequence[Plugin]]
"""Makes the plugins of a configuration; raises SettingsError for those that there are not."""

_START_SECONDS: Final = 30.0
_MAX_SHOWN: Final = 300


@dataclass(frozen=True, slots=True)
class Reloaded:
    """How a reload ended: what changed, or why it was refused. ``at`` is in Unix time."""

    at: float
    ok: bool
    said: tuple[str, ...]


class Reloader:
    """Gives the parts of one application other settings.

    ``settings`` are those in force, ``last`` is how the last reload ended. ``again`` reads them
    anew from where they are from, and takes them over or notes why not; None where they are from
    nowhere. ``configure`` gives the settings to what else outlives them; it must not fail.
    """

    def __init__(
        self,
        settings: Settings,
        make_plugins: MakePlugins,
        fleet: Fleet,
        plugin_sets: PluginSets,
        metrics: Metrics,
        configure: Callable[[Settings], None],
    ) -> None:
        self.settings = settings
        self._configure = configure
        self.last: Reloaded | None = None
        self.again: Callable[[], Awaitable[None]] | None = None
        self._make_plugins = make_plugins
        self._fleet = fleet
        self._plugin_sets = plugin_sets
        self._metrics = metrics
        self._one_at_a_time = asyncio.Lock()
        metrics.reloads.loaded(time.time())

    async def reload(self, settings: Settings) -> tuple[str, ...]:
        """Take these settings over; what changed, in words without any secret.

        Raises SettingsError, and has changed nothing then. One that comes while another one is
        going on waits for it.
        """
        async with self._one_at_a_time:
            try:
                prepared, chain = self._prepared(settings)
                changed = changes(self.settings, settings)
                await _started(chain)
            except SettingsError as error:
                self.refused(error)
                raise
            try:
                self._apply(prepared, chain)
            except BaseException:
                await chain.stop()
                raise
            self._note("ok", changed)
            self._metrics.reloads.loaded(time.time())
            return changed

    def refused(self, error: SettingsError) -> None:
        """Note that there was a configuration that could not be used, or not even read."""
        self._note("refused", tuple(map(str, error.mistakes)))

    def _prepared(self, settings: Settings) -> tuple[Prepared, PluginChain]:
        """What can be made without touching anything that runs; raises SettingsError."""
        fixed = needing_restart(self.settings, settings)
        mistakes = [Mistake(field, None, "takes a restart to change") for field in fixed]
        chain = prepared = None
        try:
            chain = PluginChain(self._make_plugins(settings))
        except SettingsError as error:
            mistakes += error.mistakes
        except Exception as exc:
            mistakes.append(Mistake("plugins", None, _told(exc)))
        try:
            prepared = self._fleet.prepare(settings)
        except SettingsError as error:
            mistakes += error.mistakes
        if mistakes or prepared is None or chain is None:
            raise SettingsError(mistakes)
        return prepared, chain

    def _apply(self, prepared: Prepared, chain: PluginChain) -> None:
        """The step in which everything changes: nothing in it waits, nothing in it may fail."""
        self._fleet.apply(prepared)
        self._configure(prepared.settings)
        self._plugin_sets.swap(chain)
        self.settings = prepared.settings

    def _note(self, result: Literal["ok", "refused"], said: tuple[str, ...]) -> None:
        self.last = Reloaded(time.time(), result == "ok", said)
        self._metrics.reloads.ended(result)


async def _started(chain: PluginChain) -> None:
    """Start the plugins; raises SettingsError, and has stopped them then."""
    try:
        async with asyncio.timeout(_START_SECONDS):
            await chain.start()
    except Exception as exc:
        raise SettingsError([Mistake("plugins", None, _told(exc))]) from exc


def _told(exc: Exception) -> str:
    """What went wrong in a plugin, on one line, with the note that says in which one."""
    notes = getattr(exc, "__notes__", None) or getattr(exc.__cause__, "__notes__", [])
    words = [*notes, type(exc).__name__, " ".join(str(exc).split())]
    return ": ".join(filter(None, words))[:_MAX_SHOWN]


_log = get_logger("router.reload")

_LOOK_SECONDS: Final = 2.0
"""So often the file is looked at; what is new is taken over if it is the same a look later."""


class Following:
    """Has ``reloader`` take over ``file``, whose settings it runs with, whenever it is changed.

    What cannot be used is a line in the log, and the old settings stay.
    """

    def __init__(self, file: ConfigFile, reloader: Reloader) -> None:
        self._file = file
        self._reloader = reloader
        self._one_at_a_time = asyncio.Lock()

    async def follow(self, asked: asyncio.Event) -> None:
        """Reload when the file has changed, and when ``asked`` is set; does not return."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await asked.wait()
            if asked.is_set() or await self._changed():
                asked.clear()
                await self.again()

    async def again(self) -> None:
        """Read the file and take it over, changed or not; never raises for what it says."""
        path = str(self._file.path)
        async with self._one_at_a_time:
            before = self._reloader.settings.logging
            try:
                changed = await self._reloader.reload(await self._read())
            except SettingsError as error:
                reasons = [str(mistake) for mistake in error.mistakes]
                _log.error("configuration refused, nothing is changed", file=path, reasons=reasons)
                return
            except Exception:
                # A bug, and no reason not to look at the file any more.
                _log.exception("configuration not reloaded", file=path)
                return
            after = self._reloader.settings.logging
            if after != before:
                configure(after.level, after.format)
            _log.info("configuration reloaded", file=path, changed=changed)

    async def _changed(self) -> bool:
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._file.changed)

    async def _read(self) -> Settings:
        try:
            return await asyncio.to_thread(self._file.reload)
        except SettingsError as error:
            self._reloader.refused(error)
            raise
