"""``POST /admin/explain``: the request is read like a real one, and goes nowhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from aiohttp import web

from router.core.exchange import ClientRequest, Exchange, ExchangeContext, Operation
from router.dialects.dropped import refuse_dropped
from router.dialects.images import remote_images
from router.dialects.parameters import missing
from router.dialects.responses.echo import without_credentials
from router.dialects.responses.input_items import item_type
from router.dialects.responses.schema import parse_object
from router.endpoints.explain_routing import Explainer
from router.endpoints.plan import Fallbacks
from router.http.body import is_true, without_misspelt
from router.http.detect_api import check_body, operation_of
from router.http.dispatcher import RequestDispatcher, json_response
from router.http.responses import check_durable
from router.pipeline.hedging import Fleet
from router.response.frame import Frame
from router.settings.schema import Settings
from router.tools.compaction import Compactor
from router.tools.compaction_preview import previewed
from router.tools.loop import ToolLoop
from router.tools.offers import Runner

__all__ = ["ExplainApi"]

_FETCHED = "(base64 of the image)"
_NOT_LOOKED_UP = "(input that is not looked up)"
"""Stands where nothing else would be left of the input, which endpoints refuse."""

_RUN_BY: Final[Mapping[Runner, str]] = {
    "router": "is run by the router: the model is offered functions that 'request' does not show.",
    "endpoint": "is left to the endpoint.",
    "nobody": "is run by nobody: it is dropped.",
}
_REFERENCES = ("previous_response_id", "conversation", "prompt")


class ExplainApi:
    """Explains with the settings of the moment."""

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        fleet: Fleet,
        settings: Callable[[], Settings],
        tools: ToolLoop,
        compactor: Compactor,
    ) -> None:
        self._compactor = compactor
        self._tools = tools
        self._dispatcher = dispatcher
        self._settings = settings
        self._explainer = Explainer(fleet.registry, fleet.selector, time.monotonic)

    async def explain(self, request: web.Request, exchange: Exchange) -> web.StreamResponse:
        """POST /admin/explain: an Explanation.

        The body is that of ``POST /v1/responses``, or of another API whose fields it has (see
        ``operation_of``); what is wrong with it is told as it is there.
        """
        body = await self._dispatcher.read(request, exchange, parse_object)
        operation = operation_of(body)
        if operation is Operation.RESPONSES and is_true(request.query.get("stream")):
            body["stream"] = True
        check_body(operation, body)
        if body.get("model") is None:  # a stored prompt might name it, and is not looked up
            raise missing("model")
        notes = ["Plugins are not asked: they may refuse a request, answer or change it."]
        if operation is Operation.RESPONSES:
            check_durable(body)
            unresolved = [*_unresolved(body)]
            notes += unresolved
            own = _own_input(body)
            body = {**body, "input": own or (_NOT_LOOKED_UP if unresolved else own)}
            body |= _shown_tools(body, notes)
        settings = self._settings()
        strict = settings.server.unsupported == "strict"
        body, dropped = without_misspelt(body)
        if strict:
            refuse_dropped(dropped, {})
        pretended = _pretended(exchange, operation, body, settings)
        pretended.dropped = dropped
        if operation is Operation.RESPONSES:
            notes += await previewed(self._compactor, pretended)
            async for index, tool, runner in self._tools.offers.runners(pretended):
                notes.append(f"'tools[{index}]' ({tool['type']}) {_RUN_BY[runner]}")
        if settings.fetch.images and (remote := remote_images(body)):
            notes.append("Images are not fetched; an endpoint that takes no URLs may be left out.")
            pretended.images = dict.fromkeys(remote, _FETCHED)
        _, fallbacks = Fallbacks(settings.fallbacks).of(body["model"], None)
        if fallbacks:
            notes.append(
                "Keys are given those fallbacks that they may use, or all: see 'for_keys'."
            )
        explanation = await self._explainer.explain(
            pretended,
            fallbacks,
            settings.balance.max_attempts,
            notes,
            strict=strict,
        )
        return json_response(explanation)


def _unresolved(body: Mapping[str, Any]) -> Iterator[str]:
    """What is not looked up: it takes its owner's key, and perhaps a turn in a conversation."""
    for name in _REFERENCES:
        if body.get(name):
            yield f"What '{name}' refers to is not looked up: the request has more input than this."
    items = body.get("input")
    if isinstance(items, list) and any(item_type(i) == "item_reference" for i in items):
        yield "What an 'item_reference' refers to is not looked up: it is left out."


def _shown_tools(body: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """The field ``tools`` without credentials, which are noted; nothing where there are none."""
    tools = body.get("tools")
    shown = without_credentials(tools)
    if shown == tools:
        return {}
    notes.append("Credentials of tools are not shown: 'request' leaves them out.")
    return {"tools": shown}


def _own_input(body: Mapping[str, Any]) -> str | list[dict[str, Any]]:
    """The input without what has to be looked up."""
    given = body.get("input") or []
    if isinstance(given, str):
        return given
    return [item for item in given if item_type(item) != "item_reference"]


def _pretended(
    exchange: Exchange, operation: Operation, body: dict[str, Any], settings: Settings
) -> Exchange:
    """The exchange that the request would be."""
    pretended = Exchange(
        ClientRequest(
            id=exchange.request.id,
            operation=operation,
            route=exchange.request.route,
            method=exchange.request.method,
            headers={},
            remote=None,
            started=exchange.request.started,
        ),
        ExchangeContext(),
    )
    pretended.body = body
    pretended.model = body["model"]
    pretended.stream = bool(body.get("stream"))
    pretended.context.truncates_chat = settings.server.chat_truncation == "auto"
    if operation is Operation.RESPONSES and (
        body.get("store") is not False or body.get("conversation")
    ):
        pretended.record = _Unkept()
    return pretended


class _Unkept:
    """Stands for the record of a response that would be stored; what is sent depends on that."""

    async def finish(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str], last: Frame | None
    ) -> bool:
        """See ``ExchangeRecord.finish``: there is nothing to keep."""
        return False

    def abandon(self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]) -> None:
        """See ``ExchangeRecord.abandon``: there is nothing to keep."""
