"""For the people who run it: liveness, readiness, metrics."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator

from aiohttp import web
from pydantic import SecretStr

from router.core.exchange import Exchange
from router.core.key import bearer_token, same_key
from router.endpoints.registry import Registry
from router.errors import AuthenticationFailed, RouterError
from router.http.dispatcher import RequestDispatcher, json_response
from router.state.database import Database
from router.telemetry.fleet_metrics import DeploymentGauges
from router.telemetry.metrics import Metrics
from router.usage.rate_limiter import RateLimiter

__all__ = ["Service"]


Scrape = Callable[[str], Awaitable[tuple[bytes, str]]]
"""The body and content type of the metrics of several processes, for an ``Accept`` header."""


class Service:
    """Handlers for ``/health``, ``/ready`` and ``/metrics``."""

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        registry: Registry,
        metrics: Metrics,
        database: Database,
        rate_limiter: RateLimiter,
        metrics_key: SecretStr | None = None,
        scrape: Scrape | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._database = database
        self._rate_limiter = rate_limiter
        self._metrics_key = metrics_key
        self._registry = registry
        self._metrics = metrics
        self._scrape = scrape
        metrics.fleet.watch_deployments(lambda: _deployments(registry))
        metrics.process.watch_open(lambda: dispatcher.open)
        dispatcher.run_beside(metrics.process.watch_loop)

    async def health(self, request: web.Request) -> web.StreamResponse:
        """GET /health: the process is alive."""
        return json_response({"status": "ok"})

    async def ready(self, request: web.Request) -> web.StreamResponse:
        """GET /ready: 200 when some endpoint can serve, else 503 and why.

        A database or a store of the limits that is down is told and no reason for a 503: every
        router would have it.
        """
        endpoints = {endpoint.name: endpoint.ready for endpoint in self._registry.endpoints}
        status = "ready"
        if self._dispatcher.draining:
            status = "draining"
        elif self._dispatcher.stopping:
            status = "stopping"
        elif not any(endpoints.values()):
            status = "no endpoint can serve"
        body = {
            "status": status,
            "endpoints": endpoints,
            "state": self._database.up,
            "limits": self._rate_limiter.up,
        }
        return json_response(body, 200 if status == "ready" else 503)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """GET /metrics, in the form that the scraper asks for."""
        accept = request.headers.get("Accept", "")
        if self._scrape is None:
            body, content_type = self._metrics.exposition(accept)
        else:
            try:
                body, content_type = await self._scrape(accept)
            except RouterError as error:
                return json_response(error.envelope(), error.status)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def metrics_with_key(
        self, request: web.Request, exchange: Exchange
    ) -> web.StreamResponse:
        """GET /metrics for whoever was let in: by the guards (``metrics.require_key``), or by
        ``admit_scraper``.
        """
        return await self.metrics(request)

    async def admit_scraper(self, exchange: Exchange) -> None:
        """Let a request with ``metrics.key`` pass; raises AuthenticationFailed."""
        given = bearer_token(exchange.request.headers.get("Authorization", ""))
        assert self._metrics_key is not None
        if given is None or not same_key(given, self._metrics_key.get_secret_value()):
            said = (
                "The metrics ask for a key of their own. Send it as 'Authorization: Bearer KEY'."
                if given is None
                else "Incorrect key for the metrics provided."
            )
            raise AuthenticationFailed(said, headers={"WWW-Authenticate": "Bearer"})
        exchange.context.caller = "metrics"


def _deployments(registry: Registry) -> Iterator[DeploymentGauges]:
    """Every model at an endpoint that was asked for and may be a label."""
    now = time.monotonic()
    for endpoint in registry.endpoints:
        for model, deployment in endpoint.deployments.items():
            if model in registry.known_models:
                yield DeploymentGauges(
                    endpoint.name,
                    model,
                    deployment.most,
                    deployment.breaker.state(now).value,
                    None if endpoint.catalogue.in_memory(model) is None else deployment.loaded,
                )
