"""The composition root: the only module that knows everybody."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from aiohttp import web

from plugins import default_plugins
from router.endpoints.prober import Prober
from router.endpoints.registry import Endpoint, Registry
from router.endpoints.slots import SlotKey
from router.pipeline import Pipeline
from router.plugin import Chain, Plugin
from router.settings.load import Mistake, SettingsError
from router.settings.schema import Settings
from router.telemetry.metrics import Metrics
from router.upstream.adapters import make_adapter
from router.upstream.http1 import HttpTransport
from router.web.chat import ChatApi
from router.web.front import Front
from router.web.models import ModelsApi
from router.web.responses import ResponsesApi
from router.web.routes import add_routes
from router.web.service import Service

__all__ = ["FRONT", "REGISTRY", "create_app", "load_plugins", "package_version"]

FRONT: Final = web.AppKey("front", Front)
"""Where an application keeps its front, for whoever runs it to drain."""

REGISTRY: Final = web.AppKey("registry", Registry)
"""Where an application keeps its endpoints and their slots, for whoever runs it to look at."""


def package_version() -> str:
    """The installed version."""
    try:
        return version("llm-switchyard")
    except PackageNotFoundError:
        return "unknown"


def create_app(config: Settings) -> web.Application:
    """An application that can be run, or mounted in another aiohttp application.

    Several can live in one process. Whoever runs it should cancel handlers whose client leaves
    (``AppRunner(app, handler_cancellation=True)``); where that is not possible a disconnect is
    noticed within a second. Raises SettingsError for plugins that cannot be made.
    """
    metrics = Metrics(package_version())
    registry = _registry(config, metrics)
    chain = Chain(_plugins(config, metrics, registry))
    front = Front(chain, config.server)
    pipeline = Pipeline(registry, config, metrics, chain.first_output)
    prober = _prober(config, registry, metrics)
    app = web.Application(client_max_size=front.max_body)
    app[FRONT] = front
    app[REGISTRY] = registry
    add_routes(
        app,
        front,
        ResponsesApi(front, pipeline.answer),
        ChatApi(front, pipeline.answer),
        ModelsApi(registry),
        Service(front, registry, metrics),
        metrics_need_key=config.metrics.require_key,
    )

    async def life(app: web.Application) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await chain.start()
            stack.push_async_callback(chain.stop)
            for endpoint in registry.endpoints:
                stack.push_async_callback(endpoint.transport.close)
            stack.push_async_callback(prober.stop)
            prober.start()
            stack.push_async_callback(front.stop)
            front.start()
            yield

    async def drain(app: web.Application) -> None:
        await front.drain(config.server.drain_timeout)

    app.cleanup_ctx.append(life)
    app.on_shutdown.append(drain)
    return app


def _registry(config: Settings, metrics: Metrics) -> Registry:
    endpoints = [
        Endpoint(settings, make_adapter(settings), HttpTransport(settings))
        for settings in config.endpoints
    ]

    def slots_changed(slot: SlotKey, in_flight: int) -> None:
        metrics.slots_changed(slot, in_flight, known=registry.known_model(slot[1]))

    registry = Registry(endpoints, config.balance, slots_changed)
    metrics.queue_depth(lambda: registry.slots.waiting)
    return registry


def _prober(config: Settings, registry: Registry, metrics: Metrics) -> Prober:
    def told(endpoint: Endpoint) -> None:
        metrics.endpoint_up.labels(endpoint.name).set(1 if endpoint.answers else 0)

    return Prober(registry, config.balance.health_interval, told)


def _plugins(config: Settings, metrics: Metrics, registry: Registry) -> list[Plugin]:
    plugins = default_plugins(config, metrics, registry.known_model)
    return [*plugins, *load_plugins(config)]


def load_plugins(config: Settings) -> list[Plugin]:
    """Make the configured plugins; raises SettingsError naming those that cannot be made.

    Only what belongs to finding a factory is the settings' fault. An error inside of it passes.
    """
    plugins: list[Plugin] = []
    mistakes: list[Mistake] = []
    for index, name in enumerate(config.plugins):
        try:
            plugins.append(_load_plugin(name))
        except _NoPlugin as exc:
            mistakes.append(Mistake(f"plugins[{index}]", None, f"{name}: {exc}"))
    if mistakes:
        raise SettingsError(mistakes)
    return plugins


class _NoPlugin(Exception):
    """What a name of a plugin stands for cannot be used."""


def _load_plugin(name: str) -> Plugin:
    """Make the plugin named ``package.module:factory``."""
    module, _, factory = name.partition(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as exc:
        raise _NoPlugin(f"there is no module '{exc.name}'; is it installed?") from exc
    make = getattr(loaded, factory, None)
    if make is None:
        raise _NoPlugin(f"the module '{module}' has no '{factory}'")
    if not callable(make):
        raise _NoPlugin(f"'{factory}' cannot be called")
    plugin = make()
    if not isinstance(plugin, Plugin):
        raise _NoPlugin(f"it made {type(plugin).__name__}, which is not a router.plugin.Plugin")
    return plugin
