"""What is booked of every attempt: who says what it used, and how it ended."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from router.balance.averages import PromptTokens
from router.core.usage_record import NANO, NO_TOKENS, Kind, Provenance, Tokens, UsageRecord
from router.response.tokens import estimated_prompt
from router.settings.schema import Dialect
from tests.support.race import Gated, scene
from tests.support.router import endpoint, routing
from tests.support.speech import DIALECTS, SPEECH, Speech
from tests.support.upstream import Script, Upstream, refused_port, reset_now, streamed, whole
from tests.support.waiting import until

USED = Tokens(input=7, output=4)
"""What every answer of ``SPEECH`` reports."""

PRICES: dict[str, Any] = {"accounts": {"prices": {"m": {"input": 2.0, "output": 10.0}}}}
CACHE: dict[str, Any] = {"cache": {"mode": "always"}}
COST = 7 * 2_000 + 4 * 10_000
"""Of ``USED``, in nano-USD."""


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    found: Dialect = request.param
    return found


@pytest.fixture
def speech(dialect: Dialect) -> Speech:
    return SPEECH[dialect]


def told(row: UsageRecord) -> tuple[Kind, str, str, Tokens, Provenance]:
    return row.kind, row.endpoint, row.outcome, row.tokens, row.provenance


@pytest.mark.parametrize("chat", [False, True], ids=["responses", "chat"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_answer(dialect: Dialect, speech: Speech, *, stream: bool, chat: bool) -> None:
    chat = chat and dialect == "chat"
    script = streamed(*speech.pieces, kind=speech.kind) if stream else whole(speech.whole)
    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, dialect), **PRICES) as router,
    ):
        reply = await router.ask(chat=chat, stream=stream)
        (row,) = router.rows  # before the client had all of it
    assert told(row) == (Kind.FIRST, "one", "ok", USED, Provenance.REPORTED)
    assert (row.key, row.tags, row.model, row.served) == ("default", (), "m", "m")
    assert row.operation == ("chat_completions" if chat else "responses")
    assert (row.stream, row.error, row.cost) == (stream, None, COST)
    assert row.request == reply.headers["X-Request-Id"]
    if not chat:
        answer = reply.events[-1].response if stream else reply.json
        assert row.response == answer["id"]
    assert 0 < row.duration < 10
    assert (row.first_token is not None) == stream
    assert row.first_token is None or 0 < row.first_token <= row.duration


async def test_another_endpoint_after_a_failure(dialect: Dialect, speech: Speech) -> None:
    async with Upstream(default=whole(b"{}", 500)) as bad, Upstream() as good:
        good.default = whole(speech.whole)
        ends = endpoint(bad, dialect, "bad"), endpoint(good, dialect, "good", priority=2)
        async with routing(*ends, balance={"policy": "priority"}) as router:
            await router.ask()
            first, second = router.rows
    assert told(first) == (Kind.FIRST, "bad", "failed", NO_TOKENS, Provenance.ESTIMATED)
    assert first.error == "upstream_error"
    assert told(second) == (Kind.RETRY, "good", "ok", USED, Provenance.REPORTED)
    assert first.id != second.id
    assert (first.request, first.cost) == (second.request, None)


async def test_a_fallback(dialect: Dialect, speech: Speech) -> None:
    async with Upstream(default=whole(b"{}", 500)) as bad, Upstream() as good:
        good.default = whole(speech.whole)
        ends = endpoint(bad, dialect, "bad"), endpoint(good, dialect, "good", models=["other"])
        async with routing(*ends, fallbacks={"m": ["other"]}) as router:
            await router.ask()
            first, second = router.rows
    assert (first.kind, first.model, first.served) == (Kind.FIRST, "m", "m")
    assert (second.kind, second.model, second.served) == (Kind.FALLBACK, "m", "other")


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (whole(b'{"error": {"message": "no"}}', 400), "refused"),
        (whole(b"{}", 429), "failed"),
        (reset_now, "failed"),
    ],
    ids=["400", "429", "reset"],
)
async def test_what_no_endpoint_worked_on(dialect: Dialect, script: Script, outcome: str) -> None:
    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        await router.ask()
        row = router.rows[0]
    assert told(row)[2:] == (outcome, NO_TOKENS, Provenance.ESTIMATED)


async def test_an_endpoint_that_is_not_there(dialect: Dialect) -> None:
    async with refused_port() as url, routing(endpoint(url, dialect)) as router:
        await router.ask()
        assert {told(row)[2:] for row in router.rows} == {
            ("failed", NO_TOKENS, Provenance.ESTIMATED)
        }


@pytest.mark.parametrize("chat", [False, True], ids=["responses", "chat"])
async def test_a_stream_that_breaks_off(dialect: Dialect, speech: Speech, *, chat: bool) -> None:
    chat = chat and dialect == "chat"
    script = streamed(speech.opening, *speech.words[:3], kind=speech.kind)
    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        await router.ask(chat=chat, stream=True, input="x" * 400)
        (row,) = router.rows
    # Four characters to a token: of the prompt, and of "Hello, wörld". The template adds eight.
    assert told(row) == (Kind.FIRST, "one", "failed", Tokens(108, 0, 3, 0), Provenance.ESTIMATED)


@pytest.mark.parametrize("chat", [False, True], ids=["responses", "chat"])
async def test_a_client_that_leaves(dialect: Dialect, speech: Speech, *, chat: bool) -> None:
    chat = chat and dialect == "chat"
    go = asyncio.Event()

    async def script(wire: Any) -> None:
        wire.head(200, {"Content-Type": speech.kind})
        wire.piece(speech.opening)
        for word in speech.words[:3]:
            wire.piece(word)
        await go.wait()

    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, dialect, timeouts={"idle": 8})) as router,
    ):
        async with router.request(chat=chat, stream=True) as response:
            while b"rld" not in await response.content.readany():
                pass
        await until(lambda: router.rows)
        go.set()
        (row,) = router.rows
    assert told(row)[2:] == ("cancelled", Tokens(9, 0, 3, 0), Provenance.ESTIMATED)


async def test_an_estimate_stays_within_what_is_possible(dialect: Dialect, speech: Speech) -> None:
    script = streamed(speech.opening, *speech.words, kind=speech.kind)
    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, dialect, context_length=50)) as router,
    ):
        await router.ask(stream=True, input="x" * 240, max_output_tokens=2, truncation="auto")
        rows = list(router.rows)
    assert [row.tokens for row in rows] == [Tokens(50, 0, 2, 0)]


async def test_what_is_not_reported_is_an_estimate() -> None:
    body = SPEECH["chat"].whole.replace(b'"usage"', b'"other"')
    async with (
        Upstream(default=whole(body)) as upstream,
        routing(endpoint(upstream, "chat"), **PRICES) as router,
    ):
        await router.ask(input="x" * 40)
        (row,) = router.rows
    assert told(row)[2:] == ("ok", Tokens(18, 0, 4, 0), Provenance.ESTIMATED)
    assert row.cost == 18 * 2_000 + 4 * 10_000


def _uncounted(data: bytes) -> bytes:
    for name in (b'"usage"', b'"prompt_eval_count"', b'"eval_count"'):
        data = data.replace(name, b'"other"')
    return data


@pytest.mark.parametrize("chat", [False, True])
async def test_an_answer_in_one_piece_is_estimated_by_what_it_says(
    dialect: Dialect, *, chat: bool
) -> None:
    how = {"chat_completions": "translated"} if dialect == "responses" else {}
    body = _uncounted(SPEECH[dialect].whole)
    async with (
        Upstream(default=whole(body)) as upstream,
        routing(endpoint(upstream, dialect, **how)) as router,
    ):
        reply = await router.ask(input="x" * 40, chat=chat)
        assert reply.status == 200, reply.body
        (row,) = router.rows
    tokens = -(-len(SPEECH[dialect].text) // 4)
    assert told(row)[2:] == ("ok", Tokens(18, 0, tokens, 0), Provenance.ESTIMATED)


@pytest.mark.parametrize(
    "body",
    [
        {"input": "word " * 20_000},
        {"input": "hello", "instructions": "Be terse. " * 50},
        {"input": [{"role": "user", "content": f"message {number}"} for number in range(300)]},
        {
            "input": "hello",
            "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
        },
        {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is it?"},
                        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
                    ],
                }
            ]
        },
    ],
    ids=["long", "instructions", "messages", "tools", "image"],
)
@pytest.mark.parametrize("dialect", ["chat", "ollama"])
async def test_whatever_is_asked_client_and_ledger_are_told_the_same_estimate(
    dialect: Dialect, body: dict[str, Any]
) -> None:
    speech = SPEECH[dialect]
    async with (
        Upstream(default=whole(_uncounted(speech.whole))) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        usage = (await router.ask(**body)).json["usage"]
        (row,) = router.rows
    assert usage["estimated"] is True
    assert (usage["input_tokens"], usage["output_tokens"]) == (row.tokens.input, row.tokens.output)
    assert row.tokens.input == estimated_prompt(body, PromptTokens())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "ollama"])
async def test_client_and_ledger_are_told_the_same_estimate(
    dialect: Dialect, *, stream: bool
) -> None:
    """It is corrected by what the model reported before: a system prompt of 300 tokens, say."""
    speech = SPEECH[dialect]
    silent = replace(speech, whole=_uncounted(speech.whole), closing=_uncounted(speech.closing))
    estimates = []
    async with (
        Upstream(default=silent.script()) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        for _ in range(2):
            reply = await router.ask(input="x" * 40, stream=stream)
            last = reply.events[-1].data if stream else {"response": reply.json}
            assert last is not None
            usage, tokens = last["response"]["usage"], router.rows[-1].tokens
            assert usage["estimated"] is True
            assert (usage["input_tokens"], usage["output_tokens"]) == (tokens.input, tokens.output)
            estimates.append(tokens.input)
            for _ in range(20):
                router.deployment().prompts.learn(14, 314)
    assert estimates[0] == 18
    assert abs(estimates[1] - 314) < 15


async def test_an_unknown_price_is_unknown() -> None:
    async with (
        Upstream(default=whole(SPEECH["chat"].whole)) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        await router.ask()
        (row,) = router.rows
    assert row.cost is None
    assert NANO == 10**9


async def test_an_answer_from_the_cache(dialect: Dialect, speech: Speech) -> None:
    async with (
        Upstream(default=whole(speech.whole)) as upstream,
        routing(endpoint(upstream, dialect), **CACHE, **PRICES) as router,
    ):
        await router.ask()
        await until(lambda: len(router.rows) == 1)
        again = await router.ask()
        first, second = router.rows
        assert sum(await router.metric("pointsman_cache_saved_usd_total")) == COST / NANO
    assert again.headers["X-Cache"] == "HIT"
    assert told(first) == (Kind.FIRST, "one", "ok", USED, Provenance.REPORTED)
    assert told(second) == (Kind.CACHE, "", "ok", USED, Provenance.CACHED)
    assert (second.cost, second.served, second.response) == (COST, "m", again.json["id"])


async def test_a_call_that_is_shared_is_booked_once(dialect: Dialect, speech: Speech) -> None:

    async def script(wire: Any) -> None:
        await asyncio.sleep(0.1)
        await whole(speech.whole)(wire)

    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, dialect), **CACHE) as router,
    ):
        await asyncio.gather(*(router.ask() for _ in range(5)))
        await until(lambda: len(router.rows) == 5)
        kinds = sorted(row.provenance.value for row in router.rows)
    assert kinds == ["cached"] * 4 + ["reported"]


async def test_both_of_two_that_were_asked(dialect: Dialect, speech: Speech) -> None:
    late, soon = Gated(speech), Gated(speech)
    async with scene(late, soon, dialects=(dialect, dialect)) as here:
        reply = asyncio.create_task(here.router.ask(stream=True))
        await here.both()
        soon.let()
        await reply
        await until(lambda: len(here.router.rows) == 2)
        given_up, good = sorted(here.router.rows, key=lambda row: row.endpoint)
    assert told(given_up)[:3] == (Kind.FIRST, "one", "cancelled")
    assert told(given_up)[4] is Provenance.ESTIMATED
    assert told(good) == (Kind.HEDGE, "two", "ok", USED, Provenance.REPORTED)
