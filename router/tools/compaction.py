"""Compacts conversations where no endpoint can: ``POST /responses/compact``, the item
``compaction_trigger``, and ``context_management`` with its ``compact_threshold``.

A model writes a summary, in a request of its own that is limited, counted and paid for like a turn
of the answer. What the client gets of it is encrypted, and can be brought back to any router that
has the key, and to any endpoint: a model is told the summary in a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from router.core.exchange import AnswerKind, ClientGone, Exchange, Operation, Sink
from router.core.plugin_hooks import Proceed
from router.core.response_lifecycle import client_headers, new_builder, new_id
from router.core.upstream import cannot_compact
from router.core.usage_record import Spent
from router.dialects.responses.context_management import compaction_entry
from router.dialects.responses.schema import stored_items
from router.dialects.responses.summaries import (
    KEPT_TOKENS,
    Summary,
    kept_items,
    own_compactions,
    pending_messages,
    summary_request,
    summary_text,
    window,
    with_summaries,
)
from router.endpoints.deployment import Deployment, best_reported
from router.endpoints.plan import reached
from router.endpoints.registry import Registry
from router.errors import (
    InvalidRequest,
    NotFound,
    NotSupported,
    RouterError,
    UpstreamFailure,
    UpstreamModelMissing,
    UpstreamRejected,
)
from router.response.frame import Frame
from router.response.tokens import estimated_prompt, response_usage
from router.settings.schema import Settings
from router.state.compaction_keys import CompactionKeys, UnreadableCompaction
from router.telemetry.log import get_logger
from router.telemetry.metrics import Metrics
from router.tools.answer import LoopAnswer
from router.tools.turn import TurnAnswer

__all__ = ["COMPACTION_FAILED", "Compaction", "Compactor", "check_is_last", "trigger_in"]

_log = get_logger("router.tools.compaction")

Item = dict[str, Any]

COMPACTION_FAILED: Final = {"X-Pointsman-Compaction": "failed"}
"""The header of an answer to all of a conversation that was to be compacted."""

_DEFAULT_SHARE: Final = 0.8
"""The part of a model's context from which on a conversation is compacted, where the request does
not say a threshold."""

_LEAST_GAIN: Final = 0.1
"""The part of the threshold that a summary has to make room for, to be worth its price."""


class Compactor:
    """Makes summaries, and reads them. ``open_after`` is ``server.open_after``, in seconds."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        keys: CompactionKeys,
        metrics: Metrics,
    ) -> None:
        self._registry = registry
        self._keys = keys
        self._metrics = metrics
        self.open_after = settings.server.open_after
        self._settings = settings.compaction

    def configure(self, settings: Settings) -> None:
        """Go on with these settings."""
        self._settings = settings.compaction
        self._keys.configure(settings.compaction)

    async def prepare(self, exchange: Exchange) -> Compaction | None:
        """Have the exchange's input say what the summaries in it say. Returns what is to be done
        before it is answered, or instead; None is the rule.

        Raises InvalidRequest for a summary that cannot be read here, and for an order that is not
        well formed; StateUnavailable.
        """
        items = exchange.body.get("input")
        if not isinstance(items, list):
            items = _items(items)
        elif found := own_compactions(items):
            summaries = await self._opened(found, exchange.context.caller)
            items = with_summaries(items, summaries)
            exchange.body = {**exchange.body, "input": items}
        if exchange.request.operation.kind is not AnswerKind.RESPONSE:
            return None
        trigger = trigger_in(items)
        entry = compaction_entry(exchange.body)
        if (trigger is None and entry is None) or not await self.compacts(exchange):
            return None
        if entry is not None:
            exchange.body = entry.without(exchange.body)
        if trigger is not None:
            check_is_last(trigger, items)
            return Compaction(self, exchange, items[:-1], KEPT_TOKENS, ordered=True)
        assert entry is not None
        return await self._if_due(exchange, items, entry.threshold)

    async def compacts(self, exchange: Exchange) -> bool:
        """Whether it is the router that compacts for a response, and no endpoint."""
        if self._settings.run != "auto":
            return self._settings.run == "router"
        try:
            deployments = await self._deployments(exchange)
        except RouterError:
            return False  # whoever chooses an endpoint says so
        return not all(one.endpoint.adapter.compacts for one in deployments)

    async def answer(
        self, exchange: Exchange, sink: Sink, ask_endpoint: Proceed, ask: Proceed
    ) -> None:
        """Answer ``/responses/compact`` by ``ask_endpoint``, or, where none can, by a summary for
        which ``ask`` asks.
        """
        if await self._may_pass(exchange):
            try:
                await ask_endpoint(exchange, sink)
                return
            except (NotSupported, UpstreamModelMissing, UpstreamRejected) as error:
                # It serves the model, or it would not have been asked: what it lacks is the route,
                # if it did not take its last word for the id of a response.
                if isinstance(error, UpstreamRejected) and error.status != NotFound.status:
                    raise
                if self._settings.run == "endpoint":
                    raise cannot_compact(exchange.model or "") from error
        await self._compact(exchange, sink, ask)

    async def _may_pass(self, exchange: Exchange) -> bool:
        """Whether an endpoint may be able to. Raises ModelNotFound, and UpstreamUnavailable like
        ``Registry.group``.
        """
        if self._settings.run != "auto":
            return self._settings.run == "endpoint"
        deployments = await self._deployments(exchange)
        return any(one.endpoint.adapter.compacts is not False for one in deployments)

    async def _deployments(self, exchange: Exchange) -> Sequence[Deployment]:
        key = exchange.context.key
        return reached(await self._registry.group(exchange.model or "", key), key)

    async def _opened(self, found: Mapping[int, str], owner: str) -> dict[int, Summary]:
        summaries = {}
        for index, content in found.items():
            try:
                summaries[index] = Summary.loaded(await self._keys.unseal(content, owner))
            except UnreadableCompaction as error:
                raise InvalidRequest(
                    f"Invalid 'input[{index}].encrypted_content': this compacted conversation "
                    f"cannot be read. {error}",
                    code="invalid_encrypted_content",
                    param=f"input[{index}].encrypted_content",
                ) from None
        return summaries

    async def _if_due(
        self, exchange: Exchange, items: list[Item], threshold: int | None
    ) -> Compaction | None:
        """What is to be done where the input is longer than ``threshold`` tokens."""
        try:
            deployments = await self._deployments(exchange)
        except RouterError:
            return None  # whoever chooses an endpoint says so
        if threshold is None:
            contexts = [one.context for one in deployments if one.context is not None]
            if not contexts:
                return None
            threshold = int(min(contexts) * _DEFAULT_SHARE)
        prompts = best_reported(deployments)
        body = exchange.body
        if estimated_prompt(body, prompts) < threshold:
            return None
        kept = Summary("", threshold // 2, pending=bool(pending_messages(items)))
        before = estimated_prompt({"input": items}, prompts)
        after = estimated_prompt({"input": window(items, kept)}, prompts)
        if before - after < threshold * _LEAST_GAIN:
            return None
        return Compaction(self, exchange, items, kept.kept, ordered=False, pending=kept.pending)

    async def _compact(self, exchange: Exchange, sink: Sink, ask: Proceed) -> None:
        """Answer with what is kept of the items, and the summary of the rest."""
        items = [item for item in _items(exchange.body.get("input")) if not _is_trigger(item)]
        created = (new_id("resp_"), int(time.time()))
        made = await self.summarize(exchange, items, Summary(""), created, ask, "request")
        body = {
            "id": created[0],
            "object": "response.compaction",
            "created_at": created[1],
            "output": [*stored_items(kept_items(items, KEPT_TOKENS), new_id), made.item],
            "usage": made.usage,
        }
        exchange.result.usage = made.usage
        sink.finish(200, orjson.dumps(body), client_headers(exchange, made.headers))

    async def summarize(
        self,
        exchange: Exchange,
        items: list[Item],
        summary: Summary,
        created: tuple[str, int],
        ask: Proceed,
        cause: str,
    ) -> _Made:
        """A summary of the items, with what ``summary`` says of how it is used.

        ``created`` is the id, and the time, of what the client is given. Raises RouterError.
        """
        result = "failed"
        try:
            made = await self._summarize(exchange, items, summary, created, ask)
            result = "ok"
        finally:
            self._metrics.compactions.labels(cause, result).inc()
        return made

    async def _summarize(
        self,
        exchange: Exchange,
        items: list[Item],
        summary: Summary,
        created: tuple[str, int],
        ask: Proceed,
    ) -> _Made:
        model = self._settings.model or exchange.model or ""
        same = model == exchange.model
        body = summary_request(exchange.body, items, model, same_model=same)
        turn = exchange.derive(body, exchange.context.plugin_set)
        turn.request = turn.request._replace(operation=Operation.SUMMARY)
        turn.model, turn.stream, turn.turn = model, False, 1
        if exchange.result.spent is None:
            exchange.result.spent = Spent()
        turn.result.spent = exchange.result.spent
        turn.builder = new_builder(body, muted=True, created=created)
        record = turn.record = TurnAnswer()
        sink = _SummarySink()
        try:
            await ask(turn, sink)
        finally:
            ours, theirs = exchange.result, turn.result
            ours.attempts += theirs.attempts
            ours.queue_seconds += theirs.queue_seconds
        text = summary_text(record.response)
        if not text:
            raise UpstreamFailure("The model wrote no summary of the conversation.")
        exchange.result.endpoint = turn.result.endpoint
        exchange.result.account = turn.result.account
        sealed = Summary(text, summary.kept, summary.pending).dumped()
        content = await self._keys.seal(sealed, exchange.context.caller)
        item = {"id": new_id("cmp_"), "type": "compaction", "encrypted_content": content}
        usage = record.response.get("usage") or response_usage(0, 0)
        return _Made(item, text, usage, sink.headers)


class _Made:
    """A summary: its item, its text, what it took, and the headers of the answer that it was."""

    __slots__ = ("headers", "item", "text", "usage")

    def __init__(
        self, item: Item, text: str, usage: dict[str, Any], headers: Mapping[str, str]
    ) -> None:
        self.item = item
        self.text = text
        self.usage = usage
        self.headers = headers


class Compaction:
    """What is to be done for one response. ``ordered``: the summary is the response; else the
    response goes on with what is left of the conversation.
    """

    def __init__(
        self,
        compactor: Compactor,
        exchange: Exchange,
        items: list[Item],
        kept: int,
        *,
        ordered: bool,
        pending: bool = False,
    ) -> None:
        self._compactor = compactor
        self._exchange = exchange
        self._items = items
        self._summary = Summary("", kept, pending)
        self.ordered = ordered

    async def run(self, answer: LoopAnswer, created: tuple[str, int], ask: Proceed) -> None:
        """Have the summary written, show it, and go on with what is left.

        Where it fails, an ``ordered`` one raises the RouterError; else it is told in a header.
        """
        exchange = self._exchange
        timer = asyncio.get_running_loop().call_later(
            self._compactor.open_after, _open_early, answer
        )
        cause = "trigger" if self.ordered else "threshold"
        try:
            made = await self._compactor.summarize(
                exchange, self._items, self._summary, created, ask, cause
            )
        except RouterError as error:
            if self.ordered:
                raise
            exchange.result.headers.update(COMPACTION_FAILED)
            _log.warning(
                "conversation not compacted", request_id=exchange.request.id, error=error.logged
            )
            return
        finally:
            timer.cancel()
        answer.usage = made.usage
        if self.ordered:
            answer.open(made.headers)
        answer.show(made.item)
        summary = Summary(made.text, self._summary.kept, self._summary.pending)
        exchange.body = {**exchange.body, "input": window(self._items, summary)}


class _SummarySink:
    """Implements ``Sink`` for an answer in one piece, which its record has."""

    paused = opened = False

    def __init__(self) -> None:
        self.headers: Mapping[str, str] = {}

    async def resumed(self) -> None:
        """See ``Sink.resumed``."""

    def open(self, headers: Mapping[str, str]) -> None:
        """See ``Sink.open``: no stream is asked for."""

    def feed(self, batch: Sequence[Frame]) -> None:
        """See ``Sink.feed``."""

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """See ``Sink.finish``."""
        self.headers = headers

    def end(self) -> None:
        """See ``Sink.end``."""


def _open_early(answer: LoopAnswer) -> None:
    with contextlib.suppress(ClientGone):  # whoever feeds it next is told again
        answer.open({})


def _items(given: Any) -> list[Item]:
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return list(given or ())


def _is_trigger(item: Item) -> bool:
    return item.get("type") == "compaction_trigger"


def trigger_in(items: Sequence[Item]) -> int | None:
    """The place of the item that orders to compact."""
    return next((place for place, item in enumerate(items) if _is_trigger(item)), None)


def check_is_last(trigger: int, items: Sequence[Item]) -> None:
    """Raise InvalidRequest for an order to compact that is not the last item."""
    if trigger != len(items) - 1:
        raise InvalidRequest(
            f"Invalid 'input[{trigger}]': a 'compaction_trigger' must be the last item.",
            code="invalid_value",
            param=f"input[{trigger}]",
        )
