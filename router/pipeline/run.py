"""The way of a request: plan → choose an endpoint → attempt → translate → record.

The pipeline is the core of the plugin chain: it gets an admitted, validated exchange and a sink,
and answers one into the other. It knows endpoints by their contracts only. Which of them is tried,
and which next, is ``failover``'s to decide; here is what an attempt does. Everything that goes
wrong before the sink was opened is raised as a RouterError; afterwards the stream itself says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from router.core.exchange import AnswerKind, ClientGone, Exchange, Sink, internal_error
from router.core.response_lifecycle import new_builder
from router.core.upstream import DIRECT
from router.dialects.responses.schema import involves_compacting
from router.errors import RouterError
from router.pipeline.counting import count_tokens
from router.pipeline.delivery import Alarms
from router.pipeline.hedging import Fleet
from router.pipeline.native import translated
from router.pipeline.work import Means, Run
from router.telemetry.log import get_logger
from router.telemetry.metrics import Metrics
from router.tools.compaction import Compaction, Compactor
from router.tools.hosted import HostedTool
from router.tools.loop import ToolLoop
from router.usage.recorder import UsageRecorder

__all__ = ["Pipeline"]

_log = get_logger("router.pipeline.run")

_OF_ITEMS: Final = frozenset({AnswerKind.RESPONSE, AnswerKind.COMPACT, AnswerKind.COUNT})
"""Operations whose input is one of the Responses API."""


class Pipeline:
    """Answers exchanges with the endpoints of one configuration."""

    def __init__(
        self,
        fleet: Fleet,
        open_after: float,
        metrics: Metrics,
        recorder: UsageRecorder,
        tools: ToolLoop,
        compactor: Compactor,
        *,
        strict: bool = False,
    ) -> None:
        self._tools = tools
        self._compactor = compactor
        self._registry = fleet.registry
        self._selector = fleet.selector
        self._failover = fleet.failover
        self._strict = strict
        alarms = Alarms(open_after)
        self._means = Means(fleet.selector, fleet.hedging, recorder, metrics, alarms, strict)

    def answer(self, exchange: Exchange, sink: Sink) -> Coroutine[Any, Any, None]:
        """Answer the exchange, run its tools, and compact what is to be compacted; raises
        RouterError as long as nothing has been sent.
        """
        # No coroutine more than there has to be: each is kept for as long as a stream lasts.
        body, kind = exchange.body, exchange.request.operation.kind
        if not exchange.turn and kind in _OF_ITEMS:
            if kind is AnswerKind.COMPACT or involves_compacting(body):
                return self._compacted(exchange, sink)
            if (tools := body.get("tools")) and self._tools.offers.concern(tools):
                return self._with_tools(exchange, sink)
        return self._ask(exchange, sink)

    async def _compacted(self, exchange: Exchange, sink: Sink) -> None:
        """Answer what has summaries in its input, or asks for one."""
        compaction = await self._compactor.prepare(exchange)
        if exchange.request.operation.kind is AnswerKind.COMPACT:
            await self._compactor.answer(exchange, sink, self._ask, self.answer)
        else:
            await self._with_tools(exchange, sink, compaction)

    async def _with_tools(
        self, exchange: Exchange, sink: Sink, compaction: Compaction | None = None
    ) -> None:
        """Answer the exchange with the tools of it that are run here, if there are any."""
        tools: Sequence[HostedTool] = ()
        if exchange.body.get("tools") and not (compaction is not None and compaction.ordered):
            tools = await self._tools.offers.tools(exchange)
        if tools or compaction is not None:
            if (native := exchange.native) is not None:  # its turns have none
                translated(exchange, native, exchange.result.headers, strict=self._strict)
            await self._tools.answer(exchange, sink, tools, self.answer, compaction)
        else:
            await self._ask(exchange, sink)

    async def _ask(self, exchange: Exchange, sink: Sink) -> None:
        """Have an endpoint answer the exchange."""
        kind = exchange.request.operation.kind
        if kind is AnswerKind.COUNT:
            files = self._failover.files
            await count_tokens(self._registry, self._selector, exchange, sink, files)
            return
        builder = None
        if kind not in DIRECT:
            builder = exchange.builder or new_builder(exchange.body, muted=not exchange.stream)
        run = Run(self._means, exchange, sink, builder)
        try:
            await self._failover.run(exchange, run)
        except RouterError as error:
            await run.fail(error)
        except asyncio.CancelledError:
            if exchange.abort is None:
                run.abandon()
                raise
            if not sink.opened:
                raise
            await run.fail(exchange.abort)
        except ClientGone:
            run.abandon()
            raise
        except Exception:
            _log.exception("request failed", request_id=exchange.request.id)
            await run.fail(internal_error(exchange))
        finally:
            run.close()
