"""What keeps state, put together."""

from __future__ import annotations

from router.core.plugin_sets import PluginSets
from router.errors import StateUnavailable
from router.files.service import FileService
from router.pipeline.hedging import Fleet
from router.sessions.execute import Executor
from router.sessions.resolve import HistoryResolver
from router.sessions.run_credentials import RunCredentials
from router.sessions.runs import Runs
from router.sessions.turns import Turns
from router.settings.schema import Settings
from router.state.conversations import ConversationStore
from router.state.database import Database
from router.state.heartbeat import Heartbeat
from router.state.prompts import PromptStore
from router.state.responses import ResponseStore
from router.state.retention import Retention
from router.state.turn_lock import TurnLock
from router.telemetry.log import get_logger
from router.telemetry.metrics import Metrics
from router.telemetry.tasks import Worker
from router.usage.accounting import Accounting

__all__ = ["Stateful"]

_log = get_logger("router.sessions.stateful")


class Stateful:
    """What keeps state, put together."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        plugin_sets: PluginSets,
        metrics: Metrics,
        accounting: Accounting,
        worker: Worker,
        fleet: Fleet,
    ) -> None:
        config = settings.state
        self.database = database
        self.files = FileService(settings.files, database, fleet.guard)
        fleet.failover.files = self.files.requests
        self.responses = ResponseStore(database)
        self.conversations = ConversationStore(database)
        self.prompts = PromptStore(database)
        self.heartbeat = Heartbeat(database, config.lease)
        lock = TurnLock(self.conversations, self.heartbeat.id)
        resolver = HistoryResolver(self.responses, self.conversations, lock)
        credentials = RunCredentials()
        executor = Executor(
            plugin_sets, self.responses, resolver, accounting.named, worker, credentials
        )
        self.runs = Runs(
            database,
            self.heartbeat,
            config,
            executor.execute,
            metrics.state.run_ended,
            at_once=accounting.at_once,
        )
        metrics.state.watch(
            lambda: database.up, lambda: self.runs.running, lambda: self.runs.queued
        )
        self.turns = Turns(database, self.responses, resolver, self.runs, config, credentials)
        self._retention = Retention(self.responses, self.conversations, config.retention_days)

    async def start(self) -> None:
        """Take part: the database has been started."""
        await self.heartbeat.start()
        self.runs.start()
        self._retention.start()
        self.files.start()

    async def stop(self) -> None:
        """Leave; the database is closed afterwards."""
        await self.files.stop()
        await self._retention.stop()
        await self.runs.stop()
        try:
            await self.heartbeat.stop()
        except StateUnavailable:
            _log.warning("left without a word: the database does not answer")
