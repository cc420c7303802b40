"""What each hook of a plugin may do, and how it fails: the contract, hook by hook.

The plugins here are written as anybody's are: with ``router.plugin`` alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from router.plugin import (
    Exchange,
    Forbidden,
    Frame,
    Gate,
    Guard,
    Interceptor,
    InternalError,
    Key,
    Leave,
    Observer,
    Operation,
    PassingSink,
    Plugin,
    PluginChain,
    PluginContext,
    Proceed,
    Sink,
)
from tests.support.calling import answering, call, finished
from tests.support.exchanges import an_exchange
from tests.support.fetch import fetch
from tests.support.plugin_chain import Page, broke
from tests.support.router import Router, endpoint, routing
from tests.support.sse import check_responses_stream
from tests.support.waiting import until

heard: list[str] = []


@pytest.fixture(autouse=True)
def nothing_heard() -> Iterator[None]:
    heard.clear()
    yield
    heard.clear()


def acting(plugin: str, does: str) -> list[dict[str, Any]]:
    """The setting ``plugins`` for one of those below."""
    return [{"plugin": f"{__name__}:{plugin}", "options": {"does": does}}]


class Acting(Plugin):
    """Does in its hooks what its options say."""

    def __init__(self, context: PluginContext) -> None:
        self.does: str = context.options["does"]

    def act(self, hook: str) -> None:
        heard.append(hook)
        if self.does == "refuse":
            raise Forbidden("not today")
        if self.does == "break":
            raise ZeroDivisionError("hunter2")


def forgiven(router: Router, event: str) -> int:
    """How many plugins broke, according to the log."""
    found = [line for line in router.log if line["event"] == event]
    router.forgive(event)
    return len(found)


class Living(Plugin):
    def __init__(self, name: str, fails: str = "") -> None:
        self.name, self.fails = name, fails

    def live(self, what: str) -> None:
        heard.append(f"{what} {self.name}")
        if what == self.fails:
            raise OSError("no such port")

    async def start(self) -> None:
        self.live("start")

    async def stop(self) -> None:
        self.live("stop")


async def test_start() -> None:
    """It is called once, in order; where one fails, all are stopped and nothing is served."""
    with pytest.raises(OSError, match="no such port") as caught:
        await PluginChain([Living("a"), Living("b", fails="start"), Living("c")]).start()
    assert heard == ["start a", "start b", "stop c", "stop b", "stop a"]
    assert caught.value.__notes__ == ["the plugin 'b' did not start"]


async def test_stop() -> None:
    """It is called once, the last plugin first; where one fails, the others are stopped, too."""
    chain = PluginChain([Living("a"), Living("b", fails="stop"), Living("c")])
    await chain.start()
    heard.clear()
    with capture_logs() as log:
        await chain.stop()
    assert heard == ["stop c", "stop b", "stop a"]
    assert broke(log) == ["b plugin did not stop cleanly"]


class Door(Acting, Guard):
    async def admit(self, exchange: Exchange) -> None:
        assert exchange.body == {}, "it has been read"
        self.act(f"admit {exchange.request.operation.value}")
        exchange.context.caller = exchange.request.headers.get("X-Team", "nobody")


@pytest.mark.parametrize(
    ("does", "status", "code"),
    [("pass", 200, None), ("refuse", 403, "forbidden"), ("break", 500, "internal_error")],
)
async def test_admit(does: str, status: int, code: str | None) -> None:
    """A guard says who calls, or refuses before the body is read; when it breaks it refuses."""
    async with (
        answering("chat") as upstream,
        routing(endpoint(upstream, "chat"), plugins=acting("Door", does)) as router,
    ):
        team = {"X-Team": "lab"}
        reply = await call(router, "POST", "/responses", ASK, headers=team)
        assert reply.status == status
        if code is not None:
            assert reply.error["code"] == code
            assert "hunter2" not in reply.error["message"]
            bad = await fetch(router.http, "POST", f"{router.url}/v1/responses", data=b"{")
            assert bad.status == status  # nobody looked at the body
        assert forgiven(router, "guard broke") == (2 if does == "break" else 0)
        await router.idle()
        assert [row.key for row in router.rows] == (["lab"] if does == "pass" else [])
    assert heard == ["admit responses"] * len(heard)


ASK = {"model": "m", "input": "hi"}


class Counter(Acting, Gate):
    async def enter(self, exchange: Exchange) -> Leave | None:
        self.act(
            f"enter {exchange.request.operation.value} {exchange.model} {exchange.body['input']}"
        )
        exchange.result.headers["X-Counter"] = "1"

        async def leave() -> None:
            heard.append("leave")

        return leave

    async def accept(self, exchange: Exchange) -> None:
        heard.append(f"accept {exchange.model}")
        if self.does == "not accept":
            raise Forbidden("no runs today")
        if self.does == "break in accept":
            raise ZeroDivisionError("hunter2")


@pytest.mark.parametrize(("does", "status"), [("pass", 200), ("refuse", 403), ("break", 500)])
async def test_enter(does: str, status: int) -> None:
    """A gate knows what is asked for and may refuse; what it leaves is called when it is over.

    When it breaks it refuses.
    """
    async with answering("chat") as upstream:
        async with routing(endpoint(upstream, "chat"), plugins=acting("Counter", does)) as router:
            reply = await router.ask()
            assert reply.status == status
            assert forgiven(router, "gate broke") == (does == "break")
            assert ("X-Counter" in reply.headers) == (does == "pass")
        assert len(upstream.requests) == (does == "pass")
    left = ["leave"] if does == "pass" else []
    assert heard == ["enter responses m hi", *left]


class Picky(Gate):
    """Concerns the key ``alice`` only."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.breaks = breaks

    def concerns(self, key: Key | None) -> bool:
        name = None if key is None else key.name
        heard.append(f"concerns {name}")
        if self.breaks:
            raise ZeroDivisionError("hunter2")
        return name == "alice"

    async def enter(self, exchange: Exchange) -> None:
        heard.append(f"enter {exchange.context.caller}")

    async def accept(self, exchange: Exchange) -> None:
        heard.append(f"accept {exchange.context.caller}")


async def test_concerns() -> None:
    """Of the exchanges of a key that does not concern it a gate hears nothing; it is not asked for
    each of them.
    """
    chain = PluginChain([Picky()])
    proceed = chain.through(_answered)
    alice = Key("alice")
    for key in (alice, Key("bob"), None, alice):
        exchange = an_exchange(key=key, caller=key.name if key is not None else "default")
        await chain.accept(exchange)
        await proceed(exchange, Page())
    concerned = ["accept alice", "enter alice"]
    assert [one for one in heard if not one.startswith("concerns")] == concerned * 2
    heard.clear()
    await proceed(an_exchange(key=Key("alice"), caller="alice"), Page())
    assert heard == ["concerns alice", "enter alice"]  # the key of this name is another one now
    heard.clear()
    await proceed(exchange, Page())
    assert heard == ["concerns alice", "enter alice"]
    await proceed(exchange, Page())
    assert heard[2:] == ["enter alice"]


async def test_a_gate_that_cannot_say_whom_it_concerns_refuses() -> None:
    proceed = PluginChain([Picky(breaks=True)]).through(_answered)
    for _ in range(2):
        with capture_logs() as log, pytest.raises(InternalError, match="Picky"):
            await proceed(an_exchange(key=Key("bob")), Page())
        assert broke(log) == ["Picky gate broke"]


async def _answered(exchange: Exchange, sink: Sink) -> None:
    sink.finish(200, b"{}", {})


async def test_what_a_gate_leaves_is_called_also_when_the_request_fails() -> None:
    async with answering("chat") as upstream:
        plugins = [*acting("Counter", "pass"), *acting("Answering", "refuse")]
        async with routing(endpoint(upstream, "chat"), plugins=plugins) as router:
            assert (await router.ask()).status == 403
    assert heard == ["enter responses m hi", "intercept m", "leave"]


@pytest.mark.parametrize(
    ("does", "status"), [("pass", 200), ("not accept", 403), ("break in accept", 500)]
)
async def test_accept(does: str, status: int) -> None:
    """A gate may refuse a background run before it is queued, and enters it when it begins."""
    async with (
        answering("chat") as upstream,
        routing(endpoint(upstream, "chat"), plugins=acting("Counter", does)) as router,
    ):
        reply = await router.ask(background=True)
        assert reply.status == status
        assert forgiven(router, "gate broke") == (does == "break in accept")
        if status == 200:
            assert (await finished(router, reply.json["id"]))["status"] == "completed"
            await until(lambda: "leave" in heard)
    began = [line.split()[0] for line in heard[1:]]
    assert heard[0] == "accept m"
    assert began == (["enter", "leave"] if does == "pass" else [])


class Loud(PassingSink):
    """Changes what passes."""

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        super().finish(status, body.replace(b"Hello", b"HELLO"), headers)

    def feed(self, batch: Sequence[Frame]) -> None:
        super().feed([Frame(f.type, f.data.replace(b"Hello", b"HELLO")) for f in batch])


class Answering(Acting, Interceptor):
    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        self.act(f"intercept {exchange.model}")
        if self.does == "answer":
            sink.finish(203, b'{"mine": true}', {"X-Mine": "yes"})
        elif self.does == "ask another":
            exchange.ask_instead("other")
            await proceed(exchange, sink)
        elif self.does == "change":
            await proceed(exchange, Loud(sink))
        elif self.does == "break in between":
            sink.open({})
            sink.feed([Frame.of({"type": "half"})])
            raise ZeroDivisionError("hunter2")
        else:
            await proceed(exchange, sink)


async def _answer(router: Router, does: str, *, stream: bool) -> None:
    reply = await router.ask(stream=stream)
    if does == "answer":
        assert (reply.status, reply.json, reply.headers["X-Mine"]) == (203, {"mine": True}, "yes")
    elif does == "refuse":
        assert (reply.status, reply.error["message"]) == (403, "not today")
    elif does == "change":
        assert b"HELLO" in reply.body
        assert b"Hello" not in reply.body
    elif does == "break in between":
        assert [event.type for event in reply.events] == ["half", "error"]
        assert b"hunter2" not in reply.body
    else:
        assert reply.status == 200
        assert b"Hello" in reply.body


@pytest.mark.parametrize(
    ("does", "stream", "calls", "faults"),
    [
        ("pass", True, 1, 0),
        ("answer", False, 0, 0),
        ("refuse", True, 0, 0),
        ("change", False, 1, 0),
        ("change", True, 1, 0),
        ("break", True, 1, 1),  # the rest of the chain answers
        ("break in between", True, 0, 1),  # too late for that
    ],
)
async def test_intercept(does: str, stream: bool, calls: int, faults: int) -> None:
    """An interceptor answers, refuses, or changes what passes.

    When it breaks the rest of the chain answers, as long as nothing has been sent.
    """
    async with answering("chat") as upstream:
        plugins = acting("Answering", does)
        async with routing(endpoint(upstream, "chat"), plugins=plugins) as router:
            await _answer(router, does, stream=stream)
            assert forgiven(router, "interceptor broke") == faults
        assert len(upstream.requests) == calls
    assert heard == ["intercept m"]


@pytest.mark.parametrize("how", ["whole", "stream", "chat", "run"])
async def test_an_interceptor_has_another_model_asked(how: str) -> None:
    """The endpoint, the client and the ledger see that model."""
    one_of = {"stream": {"stream": True}, "run": {"background": True}}
    async with answering("chat") as upstream:
        one = endpoint(upstream, "chat", models=["m", "other"])
        async with routing(one, plugins=acting("Answering", "ask another")) as router:
            reply = await router.ask(chat=how == "chat", **one_of.get(how, {}))
            if how == "run":  # its client was told when it was queued
                assert (await finished(router, reply.json["id"]))["model"] == "m"
            elif how == "stream":
                assert check_responses_stream(reply.events)["model"] == "other"
            else:
                assert reply.json["model"] == "other"
            await router.idle()
            await until(lambda: bool(router.rows))
            assert [(row.model, row.served) for row in router.rows] == [("other", "other")]
        assert [request.json["model"] for request in upstream.requests] == ["other"]


class Listening(Acting, Observer):
    def started(self, exchange: Exchange) -> None:
        assert exchange.request.operation is Operation.RESPONSES
        self.act(f"started {exchange.model}")

    def first_output(self, exchange: Exchange) -> None:
        self.act(f"first_output {exchange.result.endpoint}")

    def ended(self, exchange: Exchange) -> None:
        assert exchange.result.outcome is not None
        assert exchange.result.finished is not None
        self.act(f"ended {exchange.result.status} {exchange.result.outcome.value}")


@pytest.mark.parametrize("does", ["hear", "break", "refuse"])
@pytest.mark.parametrize(
    ("hook", "at"),
    [
        ("started", 0),
        ("first_output", 1),
        ("ended", 2),
    ],
)
async def test_started_first_output_and_ended(does: str, hook: str, at: int) -> None:
    """An observer hears all three, in this order; nobody feels it when it breaks, or raises."""
    async with answering("chat") as upstream:
        plugins = acting("Listening", does)
        async with routing(endpoint(upstream, "chat"), plugins=plugins) as router:
            reply = await router.ask(stream=True)
            assert reply.events[-1].type == "response.completed"
            await until(lambda: len(heard) == 3)
            assert forgiven(router, "observer broke") == (0 if does == "hear" else 3)
    assert heard[at].split()[0] == hook
    assert heard == ["started m", "first_output one", "ended 200 ok"]


async def test_an_observer_hears_of_what_was_refused() -> None:
    async with answering("chat") as upstream:
        plugins = [*acting("Door", "refuse"), *acting("Listening", "hear")]
        async with routing(endpoint(upstream, "chat"), plugins=plugins) as router:
            assert (await router.ask()).status == 403
    assert heard == ["admit responses", "ended 403 refused"]


HOOKS: dict[Callable[..., Any], str] = {
    Plugin.start: "test_start",
    Plugin.stop: "test_stop",
    Guard.admit: "test_admit",
    Gate.concerns: "test_concerns",
    Gate.enter: "test_enter",
    Gate.accept: "test_accept",
    Interceptor.intercept: "test_intercept",
    Observer.started: "test_started_first_output_and_ended",
    Observer.first_output: "test_started_first_output_and_ended",
    Observer.ended: "test_started_first_output_and_ended",
}


def test_every_hook_has_a_test() -> None:
    kinds: list[type[Plugin]] = [Plugin, Guard, Gate, Interceptor, Observer]
    hooks = {
        hook
        for kind in kinds
        for name, hook in vars(kind).items()
        if callable(hook) and not name.startswith("_")
    }
    assert hooks == set(HOOKS)
    assert all(test in globals() for test in HOOKS.values())


class Holder(Gate):
    """Gives back what it has taken once it may."""

    def __init__(self, may_leave: asyncio.Event) -> None:
        self.may_leave = may_leave
        self.left = False

    async def enter(self, exchange: Exchange) -> Leave | None:
        async def leave() -> None:
            try:
                await self.may_leave.wait()
            finally:
                self.left = True

        return leave


async def test_every_gate_gives_back_what_it_has_taken_when_it_is_cancelled() -> None:
    at_once = asyncio.Event()
    at_once.set()
    gates = [Holder(at_once), Holder(asyncio.Event()), Holder(at_once)]

    async def core(exchange: Exchange, sink: Sink) -> None: ...

    passing = asyncio.ensure_future(PluginChain(gates).through(core)(an_exchange(), Page()))
    await until(lambda: gates[2].left)
    passing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await passing
    assert [gate.left for gate in gates] == [True, True, True]
