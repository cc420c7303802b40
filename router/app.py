"""The composition root: the only module that knows everybody."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from aiohttp import web

from plugins import default_plugins
from router.endpoints.prober import Prober
from router.endpoints.registry import Endpoint, Registry
from router.pipeline import Pipeline
from router.plugin import Chain, Plugin
from router.settings.schema import Settings
from router.telemetry.metrics import Metrics
from router.upstream.adapters import make_adapter
from router.upstream.transport import HttpTransport
from router.web.chat import ChatApi
from router.web.front import Front
from router.web.models import ModelsApi
from router.web.responses import ResponsesApi
from router.web.routes import add_routes
from router.web.service import Service

__all__ = ["FRONT", "create_app", "package_version"]

FRONT: Final = web.AppKey("front", Front)
"""Where an application keeps its front, for whoever runs it to drain."""


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
    noticed within a second.
    """
    metrics = Metrics(package_version())
    registry = _registry(config, metrics)
    chain = Chain(_plugins(config, metrics, registry))
    front = Front(chain, config.server)
    pipeline = Pipeline(registry, config, metrics, chain.first_output)
    prober = _prober(config, registry, metrics)
    app = web.Application(client_max_size=front.max_body)
    app[FRONT] = front
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
        await chain.start()
        prober.start()
        front.start()
        yield
        await front.stop()
        await prober.stop()
        for endpoint in registry.endpoints:
            await endpoint.transport.close()
        await chain.stop()

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
    return Registry(endpoints, config.balance, metrics.slots_changed)


def _prober(config: Settings, registry: Registry, metrics: Metrics) -> Prober:
    def told(endpoint: Endpoint) -> None:
        metrics.endpoint_up.labels(endpoint.name).set(1 if endpoint.answers else 0)

    return Prober(registry, config.balance.health_interval, told)


def _plugins(config: Settings, metrics: Metrics, registry: Registry) -> list[Plugin]:
    plugins = default_plugins(config, metrics, registry.known_model)
    plugins.extend(load_plugin(name) for name in config.plugins)
    return plugins


def load_plugin(name: str) -> Plugin:
    """Make the plugin named ``package.module:factory``; raises TypeError when it is none."""
    module, _, factory = name.partition(":")
    plugin = getattr(importlib.import_module(module), factory)()
    if not isinstance(plugin, Plugin):
        raise TypeError(f"{name} made {type(plugin).__name__}, which is not a router.plugin.Plugin")
    return plugin
