"""Interceptors: what they may do, where they may break, and what the client then gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from router import create_app
from router.core.exchange import ClientGone, Exchange, Outcome, Sink
from router.core.plugin_chain import PluginChain
from router.core.plugin_hooks import Interceptor, Proceed
from router.errors import InternalError, RouterError, UpstreamFailure
from router.response.frame import Frame
from tests.support.exchanges import an_exchange
from tests.support.fetch import fetch
from tests.support.fleet import http_client, listening, simulated
from tests.support.plugin_chain import HELLO, Page, broke

BYE = Frame.of({"type": "bye"})


class Core:
    """The end of the chain: counts its calls, and answers in one piece or as a stream."""

    def __init__(self, error: Exception | None = None, *, stream: bool = False) -> None:
        self.calls = 0
        self._error = error
        self._stream = stream

    async def __call__(self, exchange: Exchange, sink: Sink) -> None:
        self.calls += 1
        if self._error is not None:
            raise self._error
        if self._stream:
            sink.open({})
            sink.feed([HELLO])
            sink.feed([BYE])
            sink.end()
        else:
            sink.finish(200, b"core", {})


Intercept = Callable[[Exchange, Sink, Proceed], Awaitable[None]]


class By(Interceptor):
    """An interceptor made of a function."""

    def __init__(self, intercept: Intercept) -> None:
        self._intercept = intercept

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        await self._intercept(exchange, sink, proceed)


async def run(
    core: Core, *intercepts: Intercept, page: Page | None = None
) -> tuple[list[str], Exchange, list[MutableMapping[str, Any]]]:
    """Run an exchange through the chain: what was said, the exchange, the log."""
    page = page or Page()
    exchange = an_exchange()
    with capture_logs() as log:
        await PluginChain(By(intercept) for intercept in intercepts).run(exchange, page, core)
    return page.said, exchange, log


async def passes(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
    await proceed(exchange, sink)


async def breaks_at_once(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("stream", [False, True])
async def test_what_passes_is_not_changed(stream: bool) -> None:
    core = Core(stream=stream)
    said, exchange, log = await run(core, passes, passes)
    assert said == (["open", "hello", "bye", "end"] if stream else ["200 core"])
    assert (core.calls, exchange.result.outcome, log) == (1, None, [])


async def test_one_that_answers_in_one_piece() -> None:
    async def answers(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        sink.finish(203, b"mine", {})

    core = Core()
    said, _, log = await run(core, passes, answers, breaks_at_once)
    assert (said, core.calls, log) == (["203 mine"], 0, [])


async def test_one_that_answers_with_a_stream() -> None:
    async def answers(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        sink.open({})
        sink.feed([HELLO, BYE])
        if sink.paused:
            await sink.resumed()
        sink.end()

    core = Core()
    page = Page()
    page.paused = True
    said, _, log = await run(core, answers, page=page)
    assert (said, core.calls, log) == (["open", "hello", "bye", "end"], 0, [])


class Shouting(Page):
    """A sink between two others that changes what passes."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def open(self, headers: Mapping[str, str]) -> None:
        self.opened = True
        self._sink.open(headers)

    def feed(self, batch: Sequence[Frame]) -> None:
        self._sink.feed([Frame(frame.type.upper(), frame.data) for frame in batch])

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._sink.finish(status, body.upper(), headers)

    def end(self) -> None:
        self._sink.end()


async def shouts(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
    await proceed(exchange, Shouting(sink))


async def test_one_that_wraps_the_sink() -> None:
    assert (await run(Core(), shouts))[0] == ["200 CORE"]
    said, _, log = await run(Core(stream=True), passes, shouts)
    assert (said, log) == (["open", "HELLO", "BYE", "end"], [])


async def test_one_that_breaks_before_anything_falls_through() -> None:
    core = Core()
    said, exchange, log = await run(core, breaks_at_once, passes, breaks_at_once)
    assert (said, core.calls, exchange.result.outcome) == (["200 core"], 1, None)
    assert broke(log) == ["By interceptor broke"] * 2
    assert log[0]["request_id"] == "req_1"


@pytest.mark.parametrize("stream", [False, True])
async def test_one_that_answers_nothing_falls_through(stream: bool) -> None:
    async def sleeps(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        return

    core = Core(stream=stream)
    said, _, log = await run(core, sleeps)
    assert (len(said), core.calls) == (4 if stream else 1, 1)
    assert broke(log) == ["By interceptor broke"]


async def test_one_that_feeds_before_it_opens_falls_through() -> None:
    async def hasty(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        sink.feed([HELLO])

    core = Core()
    said, _, log = await run(core, hasty)
    assert (said, core.calls) == (["200 core"], 1)
    assert broke(log) == ["By interceptor broke"]


async def test_one_that_breaks_after_its_first_frame_fails_the_exchange() -> None:
    async def stumbles(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        sink.open({})
        sink.feed([HELLO])
        raise ZeroDivisionError

    core, page = Core(), Page()
    with pytest.raises(InternalError, match="'By'"):
        await run(core, stumbles, page=page)
    assert (page.said, core.calls) == (["open", "hello"], 0)


async def test_one_that_leaves_its_stream_open_fails_the_exchange() -> None:
    async def forgets(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        sink.open({})
        sink.feed([HELLO])

    with pytest.raises(InternalError, match="'By'"):
        await run(Core(), passes, forgets)


async def test_one_that_swallows_the_answer_fails_the_exchange() -> None:
    async def swallows(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        await proceed(exchange, Page())

    core = Core()
    with pytest.raises(InternalError, match="'By'"):
        await run(core, swallows)
    assert core.calls == 1


async def test_one_that_breaks_before_it_passes_the_answer_on_fails_the_exchange() -> None:
    async def drops(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        await proceed(exchange, Page())
        raise ZeroDivisionError

    core, page = Core(), Page()
    with pytest.raises(InternalError):
        await run(core, drops, page=page)
    assert (page.said, core.calls) == ([], 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_one_that_breaks_when_all_is_said_is_not_felt(stream: bool) -> None:
    async def trips(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        await proceed(exchange, sink)
        raise ZeroDivisionError

    core = Core(stream=stream)
    said, exchange, log = await run(core, passes, trips, passes)
    assert said == (["open", "hello", "bye", "end"] if stream else ["200 core"])
    assert core.calls == 1
    assert (exchange.result.outcome, exchange.result.error_code) == (
        Outcome.FAILED,
        "internal_error",
    )
    assert broke(log) == ["By interceptor broke"]


@pytest.mark.parametrize("stream", [False, True])
async def test_one_that_says_more_after_the_end_is_not_felt(stream: bool) -> None:
    async def goes_on(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        await proceed(exchange, sink)
        sink.feed([HELLO])

    said, exchange, log = await run(Core(stream=stream), goes_on)
    assert said == (["open", "hello", "bye", "end"] if stream else ["200 core"])
    assert exchange.result.outcome is Outcome.FAILED
    assert broke(log) == ["By interceptor broke"]


@pytest.mark.parametrize("error", [UpstreamFailure("down"), KeyError("a bug"), ClientGone()])
async def test_errors_of_the_core_pass_untouched(error: Exception) -> None:
    core = Core(error)
    with capture_logs() as log, pytest.raises(type(error)) as caught:
        await run(core, passes, shouts, passes)
    assert caught.value is error
    assert core.calls == 1
    assert log == []


async def test_one_that_answers_instead_of_an_error() -> None:
    async def consoles(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        try:
            await proceed(exchange, sink)
        except RouterError:
            sink.finish(200, b"never mind", {})

    said, _, log = await run(Core(UpstreamFailure("down")), consoles)
    assert (said, log) == (["200 never mind"], [])


async def test_one_that_asks_again() -> None:
    async def insists(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        await proceed(exchange, Page())
        await proceed(exchange, sink)

    core = Core()
    said, _, _ = await run(core, insists)
    assert (said, core.calls) == (["200 core"], 2)


async def test_one_that_refuses() -> None:
    async def refuses(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        raise UpstreamFailure("not today")

    core = Core()
    with capture_logs() as log, pytest.raises(UpstreamFailure):
        await run(core, refuses)
    assert (core.calls, log) == (0, [])


async def test_a_client_that_left_is_nobodys_fault() -> None:
    async def answers(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        sink.open({})
        sink.feed([HELLO])

    page, core = Page(), Core()
    page.gone = True
    with capture_logs() as log, pytest.raises(ClientGone):
        await run(core, passes, answers, page=page)
    assert (core.calls, log) == (0, [])


async def test_a_cancellation_passes() -> None:
    async def waits(exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        await asyncio.sleep(60)

    core = Core()
    task = asyncio.ensure_future(run(core, waits))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert core.calls == 0


class Stumbling(Interceptor):
    """Breaks where the request's metadata says."""

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        where = (exchange.body.get("metadata") or {}).get("break")
        if where == "first":
            raise ZeroDivisionError
        if where == "open":
            sink.open({})
            sink.feed([HELLO])
            raise ZeroDivisionError
        if where == "silent":
            return
        await proceed(exchange, sink)
        if where == "last":
            raise ZeroDivisionError


@pytest.mark.parametrize("where", ["first", "silent", "last", "nowhere"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_broken_interceptor_is_not_felt_by_the_client(where: str, stream: bool) -> None:
    reply = await ask_stumbling(where, stream)
    assert reply.status == 200
    if stream:
        assert [event.type for event in reply.events].count("response.completed") == 1
        assert reply.events[-1].type == "response.completed"
    else:
        assert reply.json["output_text"] == "1, 2, 3"


async def test_a_stream_that_breaks_after_its_first_frame_ends_with_an_error() -> None:
    reply = await ask_stumbling("open", True)
    assert [event.type for event in reply.events] == ["hello", "error"]
    assert reply.events[-1].data["code"] == "internal_error"
    assert "error" not in reply.events[-1].data


async def ask_stumbling(where: str, stream: bool) -> Any:
    async with simulated("chat") as endpoints, http_client() as http:
        settings = {
            "endpoints": endpoints,
            "logging": {"access": False},
            "state": {"url": "sqlite:///:memory:"},
            "plugins": [f"{__name__}:Stumbling"],
        }
        body = {
            "model": "sim-chat",
            "input": "count to 3",
            "metadata": {"break": where},
            "stream": stream,
        }
        with capture_logs() as log:
            async with listening(create_app(settings)) as url:
                reply = await fetch(http, "POST", f"{url}/v1/responses", json=body)
        broken = [line["plugin"] for line in log if line["event"] == "interceptor broke"]
        assert broken == ([] if where == "nowhere" else ["Stumbling"])
        return reply
