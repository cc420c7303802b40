"""A second endpoint is asked when the first is late; the client gets one clean answer."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Any

import pytest

from router.settings.schema import Dialect
from tests.support.calling import call, finished
from tests.support.client import Client
from tests.support.race import NAMES, Gated, Scene, scene
from tests.support.router import Reply
from tests.support.speech import DIALECTS, SPEECH, Speech
from tests.support.sse import check_responses_stream, parse_events, text_of
from tests.support.upstream import Script, Wire, paced, reset_now, silent, streamed, whole
from tests.support.waiting import until

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
CUSTOM = {"type": "custom", "name": "c"}
HOSTED = {"type": "web_search"}
EARLY = {"open_after": 0.02, "keepalive_interval": 0.02}


def ask(here: Scene, **fields: Any) -> asyncio.Task[Reply]:
    """A request for a stream, under way."""
    return asyncio.create_task(here.router.ask(**{"stream": True, **fields}))


def check(reply: Reply, text: str = SPEECH["chat"].text) -> dict[str, Any]:
    """The final response of a stream that is whole."""
    final = check_responses_stream(reply.events)
    assert (final["status"], final["output_text"]) == ("completed", text)
    assert text_of(reply.events) == text
    return final


@pytest.mark.parametrize("second", DIALECTS)
@pytest.mark.parametrize("first", DIALECTS)
@pytest.mark.parametrize("opened", [False, True], ids=["silent", "opened"])
async def test_the_second_wins(first: Dialect, second: Dialect, opened: bool) -> None:
    late, soon = Gated(SPEECH[first]), Gated(SPEECH[second])
    async with scene(late, soon, dialects=(first, second)) as here:
        late.let(opened)
        reply = ask(here)
        await here.both()
        soon.let(2)
        await here.gone(0)
        assert [here.router.deployment(name).in_flight for name in ("one", "two")] == [0, 1]
        soon.let()
        final = check(await reply)
        assert reply.result().headers["X-Pointsman-Endpoint"] == "two"
        assert reply.result().headers["X-Pointsman-Attempts"] == "2"
        stored = await call(here.router, "GET", f"/responses/{final['id']}")
        assert stored.json == final
        assert await here.counted() == {"won": 1}
        assert await here.attempts(0, "cancelled") == await here.attempts(1, "ok") == 1
        assert await here.attempts(0, "ok") == await here.attempts(1, "cancelled") == 0


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_first_wins_after_all(dialect: Dialect) -> None:
    late, soon = Gated(SPEECH[dialect]), Gated(SPEECH[dialect])
    async with scene(late, soon, dialects=(dialect, dialect)) as here:
        reply = ask(here)
        await here.both()
        soon.let(1)
        late.let(2)
        await here.gone(1)
        assert [here.router.deployment(name).in_flight for name in ("one", "two")] == [1, 0]
        late.let()
        check(await reply)
        assert reply.result().headers["X-Pointsman-Endpoint"] == "one"
        assert reply.result().headers["X-Pointsman-Attempts"] == "2"
        assert await here.counted() == {"lost": 1}
        assert await here.attempts(0, "ok") == await here.attempts(1, "cancelled") == 1


@pytest.mark.parametrize("early", [False, True], ids=["held", "begun"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_first_fails_meanwhile(dialect: Dialect, early: bool) -> None:
    """It is heard of at once, whatever the second does."""
    late = Gated(SPEECH[dialect], broken=reset_now)
    soon = Gated(SPEECH[dialect])
    server = EARLY if early else {}
    async with scene(late, soon, dialects=(dialect, dialect), server=server) as here:
        reply = ask(here)
        await here.both()
        late.let()
        await here.free(0)
        assert await here.attempts(0, "upstream_error") == 1
        assert here.router.deployment("one").breaker.failure_ratio(time.monotonic())
        soon.let()
        check(await reply)
        assert await here.counted() == {"won": 1}
        assert await here.attempts(0, "cancelled") == 0
        assert here.asked == [1, 1]


@pytest.mark.parametrize("fault", [whole(b"{}", 500), whole(b"{}", 429), reset_now])
async def test_the_second_fails(fault: Script) -> None:
    late = Gated(SPEECH["chat"])
    async with scene(late, fault) as here:
        reply = ask(here)
        await here.both()
        await here.free(1)
        late.let()
        check(await reply)
        assert reply.result().headers["X-Pointsman-Endpoint"] == "one"
        assert await here.counted() == {"failed": 1}
        assert await here.attempts(1, "cancelled") == 0
        [line] = [line for line in here.router.log if line["event"] == "attempt failed"]
        assert line["endpoint"] == "two"


@pytest.mark.parametrize("early", [False, True], ids=["held", "begun"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first, second", "second, first"])
async def test_both_fail_and_a_third_answers(order: tuple[int, int], early: bool) -> None:
    bad = [Gated(SPEECH[dialect], broken=reset_now) for dialect in ("responses", "chat")]
    good = streamed(*SPEECH["ollama"].pieces, kind=SPEECH["ollama"].kind)
    server = EARLY if early else {}
    # Where there is no budget left the third has to be asked in its turn.
    async with scene(
        *bad, good, dialects=("responses", "chat", "ollama"), server=server, balance={"hedge": 0.01}
    ) as here:
        reply = ask(here)
        await here.both()
        for number in order:
            bad[number].let()
            await here.free(number)
        check(await reply)
        assert here.asked == [1, 1, 1]
        assert await here.counted() == {"failed": 1}
        if not early:
            assert reply.result().headers["X-Pointsman-Endpoint"] == "three"
            assert reply.result().headers["X-Pointsman-Attempts"] == "3"


@pytest.mark.parametrize("early", [False, True], ids=["held", "begun"])
async def test_both_fail_and_nobody_is_left(early: bool) -> None:
    bad = Gated(SPEECH["chat"], broken=reset_now)
    refusing = paced(whole(b"{}", 429), 0.1)
    async with scene(bad, refusing, server=EARLY if early else {}) as here:
        reply = ask(here)
        await here.both()
        bad.let()
        answer = await reply
        if early:
            final = check_responses_stream(answer.events)
            assert (final["status"], final["output"]) == ("failed", [])
        else:
            assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")
            # What is told is what the endpoint said that is named.
            assert answer.headers["X-Pointsman-Endpoint"] == "two"
            assert answer.headers["X-Pointsman-Attempts"] == "2"
        assert here.asked == [1, 1]
        assert await here.counted() == {"failed": 1}


@pytest.mark.parametrize("winner", [0, 1], ids=["first wins", "second wins"])
@pytest.mark.parametrize("second", DIALECTS)
@pytest.mark.parametrize("first", DIALECTS)
@pytest.mark.parametrize("opened", [(0, 0), (1, 0), (0, 1)], ids=["silent", "one", "two"])
async def test_the_head_leaves_during_the_race(
    first: Dialect, second: Dialect, opened: tuple[int, int], winner: int
) -> None:
    both = [Gated(SPEECH[first]), Gated(SPEECH[second])]
    async with scene(*both, dialects=(first, second), server=EARLY) as here:
        client = await Client.open(here.router.url)
        client.ask(stream=True, headers="Connection: close\r\n", version="1.0")
        await here.both()
        for gated, steps in zip(both, opened, strict=True):
            gated.let(steps)
        begun = await client.until(b"event: response.in_progress\n")
        both[winner].let()
        rest = (begun + await client.rest()).partition(b"\r\n\r\n")[2]
        events = parse_events(rest)
        assert check_responses_stream(events)["status"] == "completed"
        assert text_of(events) == SPEECH["chat"].text
        assert here.asked == [1, 1]
        assert await here.counted() == {"won" if winner else "lost": 1}


@pytest.mark.parametrize("moment", ["silent", "opened", "begun"])
async def test_the_client_leaves(moment: str) -> None:
    both = [Gated(SPEECH["responses"]), Gated(SPEECH["responses"])]
    server = EARLY if moment == "begun" else {}
    async with scene(*both, dialects=("responses", "responses"), server=server) as here:
        client = await Client.open(here.router.url)
        client.ask(stream=True)
        await here.both()
        for gated in both:
            gated.let(moment != "silent")
        if moment == "begun":
            await client.until(b"response.in_progress")
        client.leave()
        await here.gone(0)
        await here.gone(1)
        await here.router.idle()
        assert await here.attempts(0, "cancelled") == await here.attempts(1, "cancelled") == 0


@pytest.mark.parametrize("how", ["background", "durable"])
async def test_runs(how: str) -> None:
    late, soon = Gated(SPEECH["responses"]), Gated(SPEECH["responses"])
    fields: dict[str, Any] = {"background": True}
    if how == "durable":
        fields = {"stream_options": {"durable": True}}
    async with scene(late, soon, dialects=("responses", "responses")) as here:
        reply = ask(here, **fields)
        await here.both()
        late.let(1)
        soon.let()
        await here.gone(0)
        final = check(await reply)
        assert await finished(here.router, final["id"]) == final
        replay = await call(
            here.router, "GET", f"/responses/{final['id']}", params={"stream": "true"}
        )
        assert check(replay) == final
        assert await here.counted() == {"won": 1}


@pytest.mark.parametrize("early", [False, True], ids=["held", "begun"])
@pytest.mark.parametrize("winner", [0, 1], ids=["first wins", "second wins"])
async def test_chat_completions(winner: int, early: bool) -> None:
    chat = SPEECH["chat"]
    filtered = b'data: {"choices": [], "prompt_filter_results": []}\n\n'  # no output yet
    both = [Gated(chat, before=filtered), Gated(chat, before=filtered)]
    async with scene(*both, server=EARLY if early else {}) as here:
        reply = ask(here, chat=True)
        await here.both()
        both[1 - winner].let(1)
        both[winner].let()
        await here.gone(1 - winner)
        events = (await reply).events
        assert events[-1].raw == b"[DONE]"
        deltas = [e.json["choices"][0]["delta"] for e in events[:-1] if e.json["choices"]]
        assert "".join(delta.get("content", "") for delta in deltas) == chat.text
        assert await here.counted() == {"won" if winner else "lost": 1}


async def test_an_endpoint_that_was_late_is_remembered_so() -> None:
    """Else only the answers that were quick would tell what is usual there."""
    late, soon = Gated(SPEECH["chat"]), Gated(SPEECH["chat"])
    async with scene(late, soon) as here:
        reply = ask(here)
        await here.both()
        soon.let()
        check(await reply)
        one = here.router.deployment("one")
        assert one.first_token.latest > 0.0
        one.late.observe(1.0)  # of 22 the second longest is what nineteen of twenty do not exceed
        assert one.late.value == one.first_token.latest


async def test_what_the_other_cannot_carry() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}
    late = Gated(SPEECH["chat"])
    async with scene(late, silent, dialects=("chat", "ollama")) as here:
        reply = ask(here, input=[{"role": "user", "content": [audio]}])
        await until(lambda: here.asked[0])
        late.let()
        check(await reply)
        assert here.asked == [1, 0]
        assert reply.result().headers["X-Pointsman-Attempts"] == "1"
        assert await here.counted() == {"failed": 1}


async def test_the_router_stops() -> None:
    both = [Gated(SPEECH["chat"]), Gated(SPEECH["responses"])]
    dialects: tuple[Dialect, ...] = ("chat", "responses")
    async with scene(*both, dialects=dialects, server=EARLY, idle=False) as here:
        client = await Client.open(here.router.url)
        client.ask(stream=True, version="1.0")
        await here.both()
        begun = await client.until(b"event: response.in_progress\n")
        rest = asyncio.create_task(client.rest())
        await here.router.runner.cleanup()
        events = parse_events((begun + await rest).partition(b"\r\n\r\n")[2])
        assert check_responses_stream(events)["status"] == "failed"
        await here.gone(0)
        await here.gone(1)
        assert not here.router.taken


@pytest.mark.parametrize("tools", [[FUNCTION], [FUNCTION, CUSTOM]], ids=["function", "custom"])
async def test_tools_of_the_client_are_hedged(tools: list[dict[str, Any]]) -> None:
    both = [Gated(SPEECH["responses"]), Gated(SPEECH["responses"])]
    async with scene(*both, dialects=("responses", "responses")) as here:
        reply = ask(here, tools=tools)
        await here.both()
        both[1].let()
        check(await reply)


@pytest.mark.parametrize(
    "why",
    ["off", "hosted tool", "mixed tools", "whole", "unknown", "alone", "busy", "open", "probe"],
)
async def test_not_hedged(why: str) -> None:
    speech = SPEECH["responses"]
    tools = {"hosted tool": [HOSTED], "mixed tools": [FUNCTION, HOSTED]}.get(why)
    good = whole(speech.whole) if why == "whole" else Gated(speech)
    if isinstance(good, Gated):
        good.let()
    asks: dict[str, Any] = {"stream": why != "whole", **({"tools": tools} if tools else {})}
    fields = {"max_in_flight": 1} if why == "busy" else {}
    async with scene(
        paced(good, 0.03),
        *([] if why == "alone" else [silent]),
        dialects=("responses", "responses"),
        late=None if why == "unknown" else 0.0,
        fields=fields,
        balance={"hedge": 0.0} if why == "off" else {},
    ) as here:
        if why in ("open", "probe"):
            sick, now = here.router.deployment("two" if why == "open" else "one"), time.monotonic()
            sick.breaker.trip(now if why == "open" else now - 3600)
            sick.refresh(now)
        with here.router.occupied(*(["two"] if why == "busy" else [])):
            reply = await here.router.ask(**asks)
        assert reply.status == 200
        assert reply.headers["X-Pointsman-Attempts"] == "1"
        assert sum((await here.counted()).values()) == 0
        assert not any(here.asked[1:])


async def test_the_budget_bounds_it() -> None:
    """One hedge is free, and then each costs a hundred requests."""
    speech = SPEECH["chat"]
    good = streamed(*speech.pieces, kind=speech.kind)
    async with scene(paced(good, 0.03), good, balance={"hedge": 0.01}) as here:
        here.upstreams[0].default = paced(good, 0.03)
        here.upstreams[1].default = good
        for _ in range(200):
            here.router.deployment("one").late.observe(0.0)  # whatever it takes from now on
        replies = [await here.router.ask(stream=True) for _ in range(5)]
        served = [reply.headers["X-Pointsman-Attempts"] for reply in replies]
        assert served == ["2", "1", "1", "1", "1"]
        for reply in replies:
            check(reply)


class Moody:
    """An endpoint that speaks after a while, as chance has it, or breaks before it does."""

    def __init__(self, random: Random, speech: Speech, *, breaks: float) -> None:
        self._random = random
        self._speech = speech
        self._breaks = breaks

    async def __call__(self, wire: Wire) -> None:
        """See ``Script``."""
        random, speech = self._random, self._speech
        breaks = random.random() < self._breaks
        await self._pause()
        if breaks and random.random() < 0.5:
            await random.choice([whole(b"{}", 500), whole(b"{}", 503), reset_now])(wire)
            return
        wire.head(200, {"Content-Type": speech.kind})
        for piece in (speech.opening, *speech.words, speech.closing):
            wire.piece(piece)
            await self._pause()
            if breaks:
                wire.reset()
                return
        wire.end()

    async def _pause(self) -> None:
        if self._random.random() < 0.7:
            await asyncio.sleep(self._random.choice([0.0, 0.001, 0.01, 0.03]))


@pytest.mark.parametrize("seed", range(6))
async def test_whenever_anything_happens(seed: int) -> None:
    """Every stream is whole, whoever says what at which moment, and nothing is left behind."""
    random = Random(seed)
    dialects = tuple(random.choice(DIALECTS) for _ in NAMES)
    tempers = [Moody(random, SPEECH[d], breaks=0.3) for d in dialects[:2]]
    tempers.append(Moody(random, SPEECH[dialects[2]], breaks=0.0))
    async with scene(
        *tempers,
        dialects=dialects,
        late=random.choice([0.0, 0.005, 0.02]),
        server={"open_after": random.choice([0.005, 0.015, 15.0])},
        balance={"breaker": {"failures": 1000, "ratio": 1.0, "min_requests": 1000}},
    ) as here:
        for upstream, temper in zip(here.upstreams, tempers, strict=True):
            upstream.default = temper
        replies = await asyncio.gather(*(here.router.ask(stream=True) for _ in range(60)))
        assert len({check(reply)["id"] for reply in replies}) == len(replies)
        assert sum((await here.counted()).values()) > 0
