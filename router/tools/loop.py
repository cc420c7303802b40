"""Runs the hosted tools of a request: offer, run what is called, append, ask again.

The model is offered functions that stand for the tools. It is asked; the calls that it makes of
them are run here, side by side; it is asked again with what came of them, until it calls no more.
To the client it is one response (``LoopAnswer``). A call of a function of the client's own ends the
response as always: the client has to answer it.

Turns, calls, time and results are bounded by the settings. Past a bound the model is asked once
more without the tools, so that it answers with what it has. A tool that fails is told to the model
and shown in its item; it does not end the response.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from router.core.exchange import ClientGone, Exchange, Sink, internal_error
from router.core.plugin_hooks import Proceed
from router.core.response_lifecycle import new_builder, new_id
from router.core.usage_record import Spent
from router.dialects.history import CLIENT_CALLS
from router.dialects.hosted_items import as_function_items
from router.dialects.responses.schema import ID_PREFIXES
from router.endpoints.registry import Registry
from router.errors import RouterError
from router.fetch.guard import FetchGuard
from router.response.tokens import estimate_tokens
from router.settings.schema import Settings
from router.settings.tools import ToolsSettings
from router.telemetry.log import get_logger
from router.tools.answer import LoopAnswer
from router.tools.compaction import Compaction
from router.tools.hosted import TOOL_SEARCH, HostedCall, HostedTool, ToolResult, called_function
from router.tools.offers import ToolOffers
from router.tools.turn import (
    TurnAnswer,
    TurnSink,
    approved_calls,
    as_call,
    as_output,
    only_turn_body,
    turn_body,
    without_approvals,
)

__all__ = ["Recorded", "ToolLoop"]

_log = get_logger("router.tools.loop")

Item = dict[str, Any]
Recorded = Callable[[Exchange, str, str, str, float, str | None, float], None]
"""Hears of every call that was run: for which exchange, the function, the kind of the tool, its
server, when it began (of the monotonic clock), the code of its error, and its cost in US dollars.
"""

_TOO_MANY: Final = "Not run: this request may make no more tool calls."
_TOO_LATE: Final = "Not finished: the time for the tool calls of this request was over."
_TOO_SLOW: Final = "The tool did not answer in time."


class ToolLoop:
    """Answers exchanges whose tools are run here, as ``offers`` says. ``recorded`` hears of each
    call.
    """

    def __init__(self, settings: Settings, registry: Registry, recorded: Recorded) -> None:
        self.settings = settings.tools
        self._recorded = recorded
        self._guard = FetchGuard(settings.fetch)
        self.offers = ToolOffers(settings.tools, registry, self._guard)

    def configure(self, settings: Settings) -> None:
        """Go on with these settings."""
        self.settings = settings.tools
        self._guard.settings = settings.fetch
        self.offers.configure(settings.tools)

    async def close(self) -> None:
        """End every session with a server, and every search."""
        await self.offers.close()
        self._guard.close()

    async def answer(
        self,
        exchange: Exchange,
        sink: Sink,
        tools: Sequence[HostedTool],
        ask: Proceed,
        compaction: Compaction | None = None,
    ) -> None:
        """Answer the exchange, whose ``tools`` are ready to be run; ``ask`` has a turn answered.
        The ``compaction`` comes first.

        Raises RouterError as long as nothing has been sent.
        """
        run = _LoopRun(exchange, sink, tools, ask, self.settings, self._recorded)
        run.compaction = compaction
        await run.go()


class _LoopRun:
    """One exchange's turns."""

    def __init__(
        self,
        exchange: Exchange,
        sink: Sink,
        tools: Sequence[HostedTool],
        ask: Proceed,
        settings: ToolsSettings,
        recorded: Recorded,
    ) -> None:
        self._exchange = exchange
        self._sink = sink
        self._ask = ask
        self._settings = settings
        self._recorded = recorded
        self._tools = tools
        self.compaction: Compaction | None = None
        self._by_function = {
            function.get("name", TOOL_SEARCH): tool
            for tool in tools
            for function in tool.functions()
        }
        builder = exchange.builder or new_builder(exchange.body, muted=not exchange.stream)
        self._builder = exchange.builder = builder
        self._answer = LoopAnswer(exchange, sink, builder, self._is_hosted, self._first_output)
        given = exchange.body.get("max_tool_calls")
        most = settings.max_calls
        self._calls_left = min(given, most) if isinstance(given, int) else most
        self._deadline = asyncio.get_running_loop().time() + settings.timeout
        self._at_once = asyncio.Semaphore(settings.max_parallel)
        if exchange.result.spent is None:
            exchange.result.spent = Spent()

    def _first_output(self) -> None:
        if self._exchange.result.first_output is None:
            self._exchange.context.plugin_set.chain.first_output(self._exchange)

    async def go(self) -> None:
        """Run to the end. Raises RouterError only while the client's stream is not open."""
        try:
            await self._turns()
        except RouterError as error:
            await self._answer.fail(error)
        except asyncio.CancelledError:
            if self._exchange.abort is None:
                self._answer.abandon()
                raise
            if not self._answer.opened:
                raise
            await self._answer.fail(self._exchange.abort)
        except ClientGone:
            self._answer.abandon()
            raise
        except Exception:
            _log.exception("tool loop failed", request_id=self._exchange.request.id)
            await self._answer.fail(internal_error(self._exchange))

    async def _turns(self) -> None:
        if self.compaction is not None:
            created = (self._builder.id, self._builder.created_at)
            await self.compaction.run(self._answer, created, self._ask)
            if self.compaction.ordered:
                await self._answer.complete({"status": "completed"})
                return
        for tool in self._tools:
            for item in tool.listed():
                self._answer.show(item)
        items = await self._history()
        for number in range(self._settings.max_turns):
            offered = number < self._settings.max_turns - 1 and self._may_call()
            turn = await self._turn(number, items, offered=offered)
            answered = turn.items()
            calls = [call for item in answered if (call := self._call(item)) is not None]
            if turn.response["status"] != "completed" or not calls or not offered:
                break
            waiting = [call for call in calls if self._tool(call).needs_approval(call)]
            ready = [call for call in calls if call not in waiting]
            results = await self._run(ready)
            for call in waiting:
                self._answer.show(self._approval(call))
            if waiting or self._calls_client(answered):
                break
            items = [*items, *answered, *map(as_output, ready, results)]
        await self._answer.complete(turn.response)

    def _may_call(self) -> bool:
        return self._calls_left > 0 and asyncio.get_running_loop().time() < self._deadline

    async def _history(self) -> list[Item]:
        """The request's input, with functions for hosted tools; what the client has approved of
        since is run for it.
        """
        given = self._exchange.body.get("input") or []
        if isinstance(given, str):
            given = [{"type": "message", "role": "user", "content": given}]
        approved = [call for call in approved_calls(given) if call.function in self._by_function]
        items = as_function_items(without_approvals(given, approved))
        if approved:
            self._answer.open({})
            for call, result in zip(approved, await self._run(approved), strict=True):
                items += [as_call(call), as_output(call, result)]
        return items

    async def _turn(self, number: int, items: list[Item], *, offered: bool) -> TurnAnswer:
        """Have the model asked; what it answered."""
        exchange = self._exchange
        if self._tools:
            body = turn_body(exchange.body, items, self._tools, first=number == 0, offered=offered)
        else:
            body = only_turn_body(exchange.body)
        turn = exchange.derive(body, exchange.context.plugin_set)
        turn.turn = number + 1
        turn.result.spent = exchange.result.spent
        # The ledger knows all turns, and their tools, by the id of the one response.
        created = (self._builder.id, self._builder.created_at)
        turn.builder = new_builder(body, muted=not turn.stream, created=created)
        record = turn.record = TurnAnswer()
        sink = TurnSink(self._answer, turn, self._sink)
        self._answer.begin_turn()
        try:
            await self._ask(turn, sink)
        finally:
            exchange.result.add_turn(turn.result)
            if record.response:
                self._answer.end_turn(record.response, record.encrypted)
        self._answer.open(sink.headers, turn.result.served_model)
        return record

    def _call(self, item: Item) -> HostedCall | None:
        """The call of a tool that is run here; None for any other item."""
        function = called_function(item)
        if function is None or function not in self._by_function:
            return None
        arguments = item.get("arguments") or "{}"
        if not isinstance(arguments, str):
            arguments = orjson.dumps(arguments).decode()
        return HostedCall(item["call_id"], function, arguments)

    def _is_hosted(self, item: Item) -> bool:
        return called_function(item) in self._by_function

    def _calls_client(self, items: Sequence[Item]) -> bool:
        """Whether there is a call that only the client can answer."""
        return any(item.get("type") in CLIENT_CALLS and not self._is_hosted(item) for item in items)

    def _tool(self, call: HostedCall) -> HostedTool:
        return self._by_function[call.function]

    def _approval(self, call: HostedCall) -> Item:
        item = self._tool(call).item(call)
        fields = {name: item[name] for name in ("server_label", "name", "arguments")}
        return {"id": new_id("mcpr_"), "type": "mcp_approval_request", **fields}

    async def _run(self, calls: Sequence[HostedCall]) -> list[ToolResult]:
        """Run these calls side by side, and show them one after the other."""
        results: list[ToolResult] = []
        runs, refused = calls[: self._calls_left], calls[self._calls_left :]
        self._calls_left -= len(runs)
        if runs:
            self._answer.begin(self._item(runs[0]))
            # What a run of a background response has begun must be known, should this process end.
            await self._answer.flushed()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._run_one(call)) for call in runs]
                for call, task in zip(runs, tasks, strict=True):
                    if results:
                        self._answer.begin(self._item(call))
                    results.append(await task)
                    self._show(results[-1])
        except BaseExceptionGroup as failures:  # the client is gone, say
            raise failures.exceptions[0] from None
        for call in refused:
            results.append(self._tool(call).failed(call, _TOO_MANY, "max_tool_calls"))
        return results

    def _show(self, result: ToolResult) -> None:
        self._answer.end(result.fields, failed=result.error is not None)
        self._answer.sources += result.sources
        self._answer.tool_tokens += estimate_tokens(len(result.text))
        self._answer.files += result.files
        self._answer.made.update((file.path, file) for file in result.made)
        if result.tools is not None:
            self._answer.show(
                {
                    "id": new_id(ID_PREFIXES["tool_search_output"]),
                    "type": "tool_search_output",
                    "status": "in_progress",
                    "call_id": None,
                    "execution": "server",
                    "tools": list(result.tools),
                }
            )

    def _item(self, call: HostedCall) -> Item:
        tool = self._tool(call)
        ident = new_id(ID_PREFIXES[tool.type])
        return {"id": ident, "type": tool.type, "status": "in_progress", **tool.item(call)}

    async def _run_one(self, call: HostedCall) -> ToolResult:
        tool, loop = self._tool(call), asyncio.get_running_loop()
        async with self._at_once:
            began = time.monotonic()
            deadline = min(self._deadline, loop.time() + self._settings.call_timeout)
            try:
                async with asyncio.timeout_at(deadline):
                    result = await tool.run(call, deadline)
            except TimeoutError:
                late = loop.time() >= self._deadline
                result = tool.failed(call, _TOO_LATE if late else _TOO_SLOW, "timeout")
            except Exception:
                _log.exception("tool broke", request_id=self._exchange.request.id, tool=tool.kind)
                result = tool.failed(call, "The tool failed.", "internal_error")
            self._recorded(
                self._exchange,
                call.function,
                tool.kind,
                tool.server,
                began,
                result.error,
                result.cost,
            )
        return result
