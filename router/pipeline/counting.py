"""Counting the tokens of a request, without an answer to it."""

from __future__ import annotations

import orjson

from router.core.exchange import Exchange, Sink
from router.core.upstream import UpstreamRequest
from router.dialects.input_files import with_files
from router.endpoints.deployment import Deployment, best_reported
from router.endpoints.plan import Plan, reached
from router.endpoints.registry import Registry
from router.endpoints.selector import Selector
from router.errors import UpstreamError, UpstreamRejected
from router.files.requests import RequestFiles
from router.pipeline.attempt import answer_headers
from router.pipeline.failover import has_files
from router.pipeline.request_files import forms
from router.response.tokens import estimated_prompt
from router.telemetry.log import get_logger

__all__ = ["count_tokens"]

_log = get_logger("router.pipeline.counting")


async def count_tokens(
    registry: Registry,
    selector: Selector,
    exchange: Exchange,
    sink: Sink,
    files: RequestFiles | None = None,
) -> None:
    """Ask an endpoint that can count; estimate, and say so, where none can. ``files`` gets the
    request's.
    """
    group = await registry.group(exchange.model or "", exchange.context.key)
    deployments = reached(group, exchange.context.key)
    if files is not None and has_files(exchange, deployments):
        for form in forms(deployments, exchange):
            await files.prepare(exchange, form)
    requests = {
        deployment: request
        for deployment in deployments
        if (request := deployment.endpoint.adapter.count_tokens(exchange, deployment.model))
    }
    count = None
    if requests:
        plan = Plan(group, tuple(requests), exchange.context.caller, key=exchange.context.key)
        plan.probes = False
        count = await _counted(selector, plan, exchange, requests)
    response_headers: dict[str, str] = {}
    if count is None:
        body = (
            with_files(exchange.body, exchange.files, "text") if exchange.files else exchange.body
        )
        count = estimated_prompt(body, best_reported(deployments))
        response_headers["X-Pointsman-Estimated"] = "true"
    told = {"object": "response.input_tokens", "input_tokens": count}
    sink.finish(200, orjson.dumps(told), answer_headers(exchange, response_headers))


async def _counted(
    selector: Selector, plan: Plan, exchange: Exchange, requests: dict[Deployment, UpstreamRequest]
) -> int | None:
    """What one endpoint counted, or None; raises UpstreamRejected for a bad request."""
    reservation = await selector.reserve(plan)
    deployment = reservation.deployment
    exchange.result.endpoint = deployment.endpoint.name
    exchange.result.attempts += 1
    try:
        answer = await deployment.endpoint.transport.send(requests[deployment])
        try:
            return _input_tokens(await answer.body())
        finally:
            answer.close()
    except UpstreamRejected as error:
        error.message = deployment.endpoint.redacted(error.message)
        raise
    except UpstreamError as error:
        _log.warning("token count failed", endpoint=exchange.result.endpoint, error=error.logged)
        return None
    finally:
        selector.release(reservation)


def _input_tokens(body: bytes) -> int | None:
    try:
        count = orjson.loads(body)["input_tokens"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return count if isinstance(count, int) else None
