"""The composition root: the only module that knows everybody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Final

from aiohttp import web
from pydantic import SecretStr

from cache.core import ResponseCache
from router.caching import make_cache
from router.containers.runners import make_runner
from router.containers.service import Containers
from router.core.plugin_chain import PluginChain
from router.core.plugin_sets import PluginSets
from router.dialects.dialect import client_apis
from router.endpoints.described import Described
from router.endpoints.registry import Registry
from router.http.admin import AdminApi
from router.http.browsers import BrowserRules
from router.http.chat import ChatApi
from router.http.containers import ContainersApi
from router.http.conversations import ConversationsApi
from router.http.description.api import DescriptionApi
from router.http.description.document import document
from router.http.direct import DirectServer
from router.http.dispatcher import RequestDispatcher
from router.http.embeddings import EmbeddingsApi
from router.http.files import FilesApi
from router.http.keys_admin import KeysAdmin
from router.http.models import ModelsApi
from router.http.ollama import OllamaApi
from router.http.ollama_manage import OllamaManage
from router.http.ollama_models import OllamaModels
from router.http.ollama_moves import OllamaMoves
from router.http.prompts import PromptsApi
from router.http.responses import ResponsesApi
from router.http.routes import Apis, add_routes
from router.http.service import Service
from router.http.stored import StoredApi
from router.http.translated import TranslatedApi
from router.http.usage import UsageApi
from router.http.vector_stores import VectorStoresApi
from router.http.websocket import WebSocketApi
from router.pipeline.hedging import Fleet
from router.pipeline.run import Pipeline
from router.plugin import PluginServices
from router.plugin_loading import PluginLoader
from router.reload import Reloader
from router.sessions.stateful import Stateful
from router.settings.cache import CacheSettings
from router.settings.schema import Settings, StateSettings
from router.state.compaction_keys import CompactionKeys
from router.state.connect import open_database
from router.telemetry.metrics import Metrics
from router.telemetry.tasks import Worker
from router.tools.compaction import Compactor
from router.tools.loop import ToolLoop
from router.upstream.adapters import connect
from router.usage.accounting import Accounting
from router.vector_stores.service import VectorStores
from router.workers.process import WorkerProcess

__all__ = [
    "ACCOUNTING",
    "CACHE",
    "DIRECT",
    "DISPATCHER",
    "FLEET",
    "RELOADER",
    "create_app",
    "idle_services",
    "package_version",
]

DISPATCHER: Final = web.AppKey("dispatcher", RequestDispatcher)
"""Where an application keeps its front, for whoever runs it to drain."""

DIRECT: Final = web.AppKey("direct", DirectServer)
"""Where an application keeps the server of its direct routes, for whoever listens."""

FLEET: Final = web.AppKey("fleet", Fleet)
"""Where an application keeps its endpoints and their slots, for whoever runs it to look at."""

ACCOUNTING: Final = web.AppKey("accounting", Accounting)
"""Where an application keeps its accounts."""

CACHE: Final = web.AppKey("cache", ResponseCache)
"""Where an application keeps its response cache."""

RELOADER: Final = web.AppKey("reloader", Reloader)
"""Where an application keeps what gives it another configuration while it runs."""


@cache
def package_version() -> str:
    """The installed version."""
    try:
        return installed_version("pointsman")
    except PackageNotFoundError:
        return "unknown"


def create_app(config: Settings, worker_process: WorkerProcess | None = None) -> web.Application:
    """An application that can be run, or mounted in another aiohttp application.

    Several can live in one process. Whoever runs it should cancel handlers whose client leaves
    (``AppRunner(app, handler_cancellation=True)``); where that is not possible a disconnect is
    noticed within a second. ``worker_process`` is what this process is where it is one of several
    workers. Raises SettingsError for plugins, and a cache, that cannot be made.
    """
    version = package_version()
    metrics = Metrics(version)
    fleet = Fleet(config, connect, metrics)
    registry = fleet.registry
    elsewhere = None if worker_process is None else worker_process.cache_store
    cache = make_cache(config.cache, metrics.cache, registry.named, elsewhere)
    database = open_database(config.state, metrics.state)
    accounting = Accounting(
        config,
        database,
        registry,
        metrics,
        None if worker_process is None else worker_process.rate_limiter,
    )
    tools = ToolLoop(config, registry, accounting.tool_called)
    compactor = Compactor(config, registry, CompactionKeys(database, config.compaction), metrics)
    pipeline = Pipeline(
        fleet,
        config.server.open_after,
        metrics,
        accounting.recorder,
        tools,
        compactor,
        strict=config.server.unsupported == "strict",
    )

    make_plugins = PluginLoader(PluginServices(accounting, cache, registry, metrics))
    plugin_sets = PluginSets(PluginChain(make_plugins(config)), pipeline.answer)
    browsers = BrowserRules(config.server, keyless=not config.auth.keys)
    worker = Worker()
    dispatcher = RequestDispatcher(plugin_sets, config.server, browsers, worker)
    stateful = Stateful(config, database, plugin_sets, metrics, accounting, worker, fleet)
    dispatcher.drain_beside(stateful.runs.drain)

    def configure(settings: Settings) -> None:
        dispatcher.fallback_model = settings.default_model
        accounting.configure(settings)
        tools.configure(settings)
        compactor.configure(settings)
        browsers.keyless = not settings.auth.keys

    dispatcher.fallback_model = config.default_model
    reloader = Reloader(config, make_plugins, fleet, plugin_sets, metrics, configure)
    parts = _Parts(
        plugin_sets,
        fleet,
        stateful,
        dispatcher,
        cache,
        accounting,
        reloader,
        worker,
        tools,
        compactor,
        _vector_stores(config, stateful, tools, registry, accounting, metrics),
        _containers(config, stateful, tools, worker_process),
    )
    app = _application(parts, shares=browsers.shares)
    apis = _apis(parts, config, version)
    _join(parts, apis.admin, metrics, worker_process)
    metrics.process.watch_sockets(lambda: apis.websocket.open)
    add_routes(
        app,
        dispatcher,
        apis,
        Service(
            dispatcher,
            registry,
            metrics,
            database,
            accounting.rate_limiter,
            config.metrics.key,
            None if worker_process is None else worker_process.scrape,
        ),
        metrics_opened_by=config.metrics.opened_by,
    )

    async def drain(app: web.Application) -> None:
        await dispatcher.drain(config.server.drain_timeout)
        await app[DIRECT].shutdown()

    app.cleanup_ctx.append(_life(parts))
    app.on_shutdown.append(drain)
    shares = [browsers.share] if browsers.shares else []
    app.on_response_prepare.extend([dispatcher.part, *shares])
    return app


def idle_services(config: Settings) -> PluginServices:
    """What plugins are given, not started and without anything to keep: to see whether the plugins
    of a configuration can be made.
    """
    metrics = Metrics(package_version())
    registry = Fleet(config, connect, metrics).registry
    cache = make_cache(CacheSettings(), metrics.cache, registry.named)
    database = open_database(StateSettings(url=SecretStr("sqlite:///:memory:")))
    accounting = Accounting(config, database, registry, metrics)
    return PluginServices(accounting, cache, registry, metrics)


def _vector_stores(
    config: Settings,
    stateful: Stateful,
    tools: ToolLoop,
    registry: Registry,
    accounting: Accounting,
    metrics: Metrics,
) -> VectorStores:
    """The vector stores, which the tool ``file_search`` searches, too."""
    made = VectorStores(
        config,
        stateful.database,
        stateful.files,
        registry.named,
        accounting.embeddings,
        metrics.vector_stores,
    )
    tools.offers.vector_stores = made
    return made


@dataclass(frozen=True, slots=True)
class _Parts:
    """What an application is made of."""

    plugin_sets: PluginSets
    fleet: Fleet
    stateful: Stateful
    dispatcher: RequestDispatcher
    cache: ResponseCache
    accounting: Accounting
    reloader: Reloader
    worker: Worker
    tools: ToolLoop
    compactor: Compactor
    vector_stores: VectorStores
    containers: Containers


def _containers(
    config: Settings, stateful: Stateful, tools: ToolLoop, worker: WorkerProcess | None
) -> Containers:
    """What has containers, for the API and for ``tools``; those of workers are the supervisor's."""
    settings, database, files = (
        config.tools.code_interpreter, stateful.database, stateful.files.store
    )  # fmt: skip
    lease = config.state.lease
    if settings is not None and settings.local is not None and worker is not None:
        runner, name = worker.code_runner("local")
        made = Containers(settings, database, files, runner, lease, name)
    else:
        made = Containers(settings, database, files, make_runner(settings), lease)
    tools.offers.containers = made
    return made


def _application(parts: _Parts, *, shares: bool) -> web.Application:
    """An application without routes, by whose keys its parts are found."""
    app = web.Application(client_max_size=parts.dispatcher.max_body)
    app[DISPATCHER] = parts.dispatcher
    app[FLEET] = parts.fleet
    app[CACHE] = parts.cache
    app[ACCOUNTING] = parts.accounting
    app[RELOADER] = parts.reloader
    # What CORS needs is for aiohttp's server to add.
    dispatcher = parts.dispatcher
    routes = {} if shares else dispatcher.direct
    app[DIRECT] = DirectServer(dispatcher.max_body, dispatcher.keepalive, routes, dispatcher)
    return app


def _apis(parts: _Parts, config: Settings, version: str) -> Apis:
    """The handlers of everything that is served."""
    dispatcher, stateful, registry = parts.dispatcher, parts.stateful, parts.fleet.registry
    usage = UsageApi(stateful.database, parts.accounting.rate_limiter)
    keys = KeysAdmin(
        dispatcher, parts.accounting.keys, lambda: parts.reloader.settings, registry.may_serve
    )
    more = [*keys.routes(), *usage.routes()]
    admin = AdminApi(
        dispatcher, parts.fleet, parts.reloader, parts.cache, parts.tools, parts.compactor, more
    )
    described = Described(registry)
    sockets = WebSocketApi(
        dispatcher,
        stateful.turns,
        stateful.prompts,
        stateful.responses,
        registry,
        config.server,
    )
    return Apis(
        ResponsesApi(dispatcher, stateful.turns, stateful.prompts),
        StoredApi(dispatcher, stateful.responses, stateful.runs, stateful.turns),
        ConversationsApi(dispatcher, stateful.conversations, stateful.responses.find_items),
        PromptsApi(dispatcher, stateful.prompts),
        ContainersApi(dispatcher, parts.containers),
        FilesApi(stateful.files.store),
        VectorStoresApi(dispatcher, parts.vector_stores),
        ChatApi(dispatcher),
        EmbeddingsApi(dispatcher),
        [TranslatedApi(dispatcher, api, registry) for api in client_apis()],
        sockets,
        ModelsApi(registry, dispatcher.default_model),
        admin,
        usage,
        OllamaApi(dispatcher, OllamaMoves(dispatcher, parts.fleet, admin)),
        OllamaModels(dispatcher, registry, described, version),
        OllamaManage(dispatcher, registry, described, admin),
        DescriptionApi(
            partial(document, version=version, metrics_opened_by=config.metrics.opened_by)
        ),
    )


def _join(parts: _Parts, admin: AdminApi, metrics: Metrics, worker: WorkerProcess | None) -> None:
    """Where this is one of several workers: have what is done at one of them done at the others."""
    if worker is None:
        return
    worker.watch(metrics.registry)
    worker.share_endpoints(parts.fleet.registry, parts.fleet.selector)
    accounting = parts.accounting
    forget = accounting.keys.changed

    def changed(name: str) -> None:
        forget(name)
        worker.tell_others("key", name)

    accounting.keys.changed = changed
    admin.tell_others = worker.do_elsewhere
    worker.handle(
        {
            "adopt": lambda _: accounting.ledger.adopt_soon(),
            "flush": lambda _: accounting.ledger.flush(),
            "spent": lambda asked: accounting.spent(*asked),
            "key": forget,
            **admin.done_elsewhere(),
        }
    )


def _life(parts: _Parts) -> Callable[[web.Application], AsyncIterator[None]]:
    """What is started with the application, in this order, and stopped in the opposite one."""
    plugin_sets, fleet, stateful = parts.plugin_sets, parts.fleet, parts.stateful
    dispatcher, cache, accounting = parts.dispatcher, parts.cache, parts.accounting

    async def life(app: web.Application) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.callback(parts.worker.close)
            stack.push_async_callback(stateful.database.close)
            await stateful.database.start()
            stack.push_async_callback(parts.containers.close)
            await parts.containers.start()
            stack.push_async_callback(accounting.stop)
            await accounting.start()
            stack.push_async_callback(cache.close)  # which the first plugin that uses it opens
            await plugin_sets.start()
            stack.push_async_callback(plugin_sets.stop)
            stack.push_async_callback(fleet.stop)
            stack.push_async_callback(parts.tools.close)
            fleet.start()
            stack.push_async_callback(stateful.stop)
            await stateful.start()
            stack.push_async_callback(parts.vector_stores.stop)
            await parts.vector_stores.start(stateful.heartbeat.id)
            stack.push_async_callback(dispatcher.stop)
            dispatcher.start()
            yield

    return life
