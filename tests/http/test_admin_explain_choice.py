"""What is told of a choice is how it is made; telling it takes nobody's turn."""

from __future__ import annotations

import time

import pytest

from router.balance.capability import Abilities, Feature
from router.dialects.responses.sealing import seal
from tests.support.admin import ADMIN, call_admin, explained, reported
from tests.support.explain_routing import FUNCTION, PICTURE, fleet, left_out, messages, tried
from tests.support.fetch import fetch
from tests.support.router import endpoint, routing
from tests.support.upstream import refused_port
from tests.support.waiting import until

POLICIES = ["least-loaded", "fastest", "round-robin", "weighted", "priority"]


@pytest.mark.parametrize("policy", POLICIES)
async def test_nothing_is_changed(policy: str) -> None:
    """Not even whose turn it is; nor is anybody asked."""
    async with fleet({}, {}, {}, balance={"policy": policy, "affinity": 0}) as (router, upstreams):
        for _ in range(4):
            await router.ask()
        deployments = [router.deployment(f"e{number}") for number in range(3)]
        asked = [len(upstream.requests) for upstream in upstreams]
        before = await call_admin(router, "GET", "/endpoints")
        turns = [deployment.turn for deployment in deployments]
        for _ in range(5):
            told = await explained(router, stream=True)
            assert len(tried(told)) == 3
        after = await call_admin(router, "GET", "/endpoints")
        for report in (before, after):
            for one in report.json["endpoints"]:
                assert one["models"][0].pop("first_token") is None or policy == "fastest"
        assert before.json["endpoints"] == after.json["endpoints"]
        assert before.json["queue"] == after.json["queue"]
        assert turns == [deployment.turn for deployment in deployments]
        assert asked == [len(upstream.requests) for upstream in upstreams]
        assert not len(router.fleet.selector._affinity)


async def test_the_next_in_turn() -> None:
    async with fleet({}, {}, {}, balance={"policy": "round-robin", "affinity": 0}) as (router, _):
        for _ in range(7):
            told = await explained(router)
            again = await explained(router)
            assert tried(told) == tried(again)
            assert sorted(tried(told)) == ["e0", "e1", "e2"]
            served = (await router.ask()).headers["X-Pointsman-Endpoint"]
            assert told["chosen"] == {"endpoint": served, "model": "m", "why": "round-robin"}
            assert told["request"]["endpoint"] == served


async def test_by_load() -> None:
    slots = {"max_in_flight": 4}
    async with fleet(slots, {**slots, "weight": 2.0}, slots) as (router, _):
        with router.occupied("e0", "e0", "e1", "e2"):
            told = await explained(router)
            assert tried(told) == ["e1", "e2", "e0"]
            candidates = told["plans"][0]["candidates"]
            assert [one["load"] for one in candidates] == [0.5, 0.125, 0.25]
            assert [one["score"] for one in candidates] == [0.5, 0.125, 0.25]
            assert [one["in_flight"] for one in candidates] == [2, 1, 1]
            assert {one["grade"] for one in candidates} == {"ready"}
            assert {one["wait"] for one in candidates} == {0.0}
            assert (await router.ask()).headers["X-Pointsman-Endpoint"] == "e1"


async def test_chance_is_mentioned_where_it_decides() -> None:
    async with fleet({}, {}) as (router, _):
        assert any("chance" in note for note in (await explained(router))["notes"])
        router.deployment("e1").host.drained = True
        assert not any("chance" in note for note in (await explained(router))["notes"])


async def test_by_tier() -> None:
    async with fleet(
        {"priority": 2}, {"priority": 1, "max_in_flight": 1}, balance={"policy": "priority"}
    ) as (router, _):
        told = await explained(router)
        assert tried(told) == ["e1", "e0"]
        assert told["plans"][0]["why"] == "no other endpoint is left"
        with router.occupied("e1"):
            told = await explained(router)
            assert tried(told) == ["e0"]
            assert left_out(told) == {"e0": None, "e1": "full"}


async def test_attempts_are_limited() -> None:
    async with fleet({}, {}, {}, balance={"max_attempts": 2}) as (router, _):
        told = await explained(router)
        assert (len(tried(told)), told["plans"][0]["why"]) == (2, "")


async def test_why_each_is_left_out() -> None:
    no_vision = {"capabilities": {"m": {"vision": False}}}
    short = {"capabilities": {"m": {"context_length": 10}}}
    rules = {"failures": 1, "open_seconds": 50, "max_open_seconds": 60}
    async with fleet(
        {}, {"models": ["n"]}, no_vision, short, {"max_in_flight": 1}, {}, {}, {}, {},
        balance={"breaker": rules},
    ) as (router, upstreams):  # fmt: skip
        now = time.monotonic()
        router.deployment("e5").failed(now)
        router.deployment("e6").cool_down(40, now)
        router.deployment("e7").host.unreachable(now)
        await call_admin(router, "POST", "/endpoints/e8/drain")
        with router.occupied("e4"):
            told = await explained(router, {"model": "m", "input": PICTURE * 20})
        assert left_out(told) == {
            "e0": None,
            "e1": "not_served",
            "e2": "unsupported_feature",
            "e3": "context_length_exceeded",
            "e4": "full",
            "e5": "open",
            "e6": "cooling",
            "e7": "open",
            "e8": "drained",
        }
        said = messages(told)
        assert said[:4] == [
            "It does not serve the model.",
            "It has no vision.",
            "The request does not fit into its context of 10 tokens.",
            "Its slots are taken, 1 of 1.",
        ]
        assert said[4].startswith("It has failed too often, and is left alone for ")
        assert said[5].startswith("It limits the rate, and is left alone for ")
        assert said[6:] == ["It cannot be reached.", "An operator has taken it out."]
        assert tried(told) == ["e0"]
        assert not any(upstream.requests for upstream in upstreams)


async def test_what_was_learned() -> None:
    async with fleet({}, {}) as (router, _):
        router.deployment("e0").learn(Abilities(lacks=Feature.TOOLS), time.monotonic())
        router.fleet.registry.catalogue_changed()
        told = await explained(router, tools=[FUNCTION])
        assert left_out(told) == {"e0": "unsupported_feature", "e1": None}
        assert messages(told) == ["It has no tools."]
        assert left_out(await explained(router)) == {"e0": None, "e1": None}


async def test_nobody_can() -> None:
    """The real answer is told, and the explanation is given all the same."""
    async with fleet({"capabilities": {"*": {"vision": False}}}) as (router, _):
        request = {"model": "m", "input": PICTURE}
        told = await explained(router, request)
        real = await fetch(router.http, "POST", f"{router.url}/v1/responses", json=request)
        [plan] = told["plans"]
        assert plan["error"] == real.error
        assert plan["why"] == real.error["message"]
        assert (told["chosen"], told["request"], plan["attempts"]) == (None, None, [])
        assert left_out(told) == {"e0": "unsupported_feature"}


async def test_a_dialect_that_cannot_carry_it() -> None:
    item = {"type": "local_shell_call_output", "call_id": "c", "id": "c", "output": "x"}
    request = {"model": "m", "input": [item]}
    native = {"dialect": "responses", "max_in_flight": 1}
    async with fleet({}, native, {"dialect": "ollama"}) as (router, _):
        told = await explained(router, request)
        assert tried(told) == ["e1"]
        assert left_out(told) == {
            "e0": "unsupported_dialect", "e1": None, "e2": "unsupported_dialect"
        }  # fmt: skip
        router.deployment("e1").host.drained = True
        told = await explained(router, request)
        assert left_out(told) == {
            "e0": "unsupported_dialect", "e1": "drained", "e2": "unsupported_dialect"
        }  # fmt: skip


async def test_the_one_dialect_that_cannot_carry_it() -> None:
    item = {"type": "local_shell_call_output", "call_id": "c", "id": "c", "output": "x"}
    async with fleet({}) as (router, _):
        told = await explained(router, {"model": "m", "input": [item]})
        real = await router.ask(input=[item])
        assert told["plans"][0]["error"] == real.error
        assert told["plans"][0]["why"] == real.error["message"]
        assert left_out(told) == {"e0": "unsupported_dialect"}


async def test_it_would_wait() -> None:
    async with fleet({"max_in_flight": 1}, {"max_in_flight": 1}) as (router, _):
        await router.ask()
        with router.occupied("e0", "e1"):
            told = await explained(router)
            [plan] = told["plans"]
            assert (plan["waits"], plan["why"]) == (True, "every free slot is taken")
            assert (told["chosen"], told["request"]) == (None, None)
            assert left_out(told) == {"e0": "full", "e1": "full"}
            assert sum(one["wait"] is not None for one in plan["candidates"]) == 1


async def test_nobody_is_left() -> None:
    async with fleet({}) as (router, _):
        await call_admin(router, "POST", "/endpoints/e0/drain")
        told = await explained(router)
        [plan] = told["plans"]
        assert (plan["waits"], plan["why"]) == (False, "no endpoint can be asked")
        assert (await router.ask()).status == 503


async def test_a_sick_one_for_want_of_a_better() -> None:
    rules = {"failures": 1, "open_seconds": 50, "max_open_seconds": 60, "panic": 1.0}
    async with fleet({}, balance={"breaker": rules}) as (router, _):
        router.deployment("e0").failed(time.monotonic())
        told = await explained(router)
        assert told["chosen"]["why"] == "nothing better is left"
        [candidate] = told["plans"][0]["candidates"]
        assert (candidate["grade"], candidate["left_out"]) == ("open", None)


async def test_a_breaker_is_not_probed() -> None:
    rules = {"failures": 1, "open_seconds": 0.01, "max_open_seconds": 0.01}
    async with fleet({}, {}, balance={"breaker": rules}) as (router, _):
        deployment = router.deployment("e0")
        deployment.failed(time.monotonic())
        for _ in range(3):
            await until(lambda: time.monotonic() > deployment.breaker.opens_until)
            told = await explained(router)
            assert told["chosen"]["endpoint"] == "e0"
            assert "probe" in told["chosen"]["why"]
            assert not deployment.breaker.probing
            assert (await reported(router, "e0"))["models"][0]["grade"] == "probe"


async def test_a_model_that_has_to_be_loaded() -> None:
    async with fleet({}, dialect="ollama") as (router, [upstream]):
        deployment = router.deployment("e0")
        deployment.load_time.observe(7.0)
        deployment.in_memory(time.monotonic(), False)
        told = await explained(router)
        assert told["chosen"]["why"] == "it will load the model"
        [candidate] = told["plans"][0]["candidates"]
        assert (candidate["grade"], candidate["wait"]) == ("cold", 7.0)
        assert (deployment.loaded, deployment.load_began, upstream.requests) == (False, None, [])


async def test_who_knows_the_conversation() -> None:
    async with fleet({}, {}, {}) as (router, _):
        first = {"role": "user", "content": "once upon a time " * 20}
        reply = await router.ask(input=[first], store=False)
        served = reply.headers["X-Pointsman-Endpoint"]
        follow_up = [
            first,
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": "?"},
        ]
        for _ in range(5):
            told = await explained(router, {"model": "m", "input": follow_up})
            assert told["chosen"]["endpoint"] == served
            assert told["chosen"]["why"] == "it has served what came before"
            known = {one["endpoint"]: one["preferred"] for one in told["plans"][0]["candidates"]}
            assert known == {f"e{n}": f"e{n}" == served for n in range(3)}


async def test_who_encrypted_the_reasoning() -> None:
    async with fleet({}, {}, dialect="responses") as (router, _):
        blob = seal("theirs", router.deployment("e1").endpoint.account)
        reasoning = {"type": "reasoning", "summary": [], "encrypted_content": blob}
        said = {"role": "user", "content": "go on"}
        for _ in range(5):
            told = await explained(router, {"model": "m", "input": [reasoning, said]})
            assert told["chosen"]["endpoint"] == "e1"
            assert told["request"]["body"]["input"][0]["encrypted_content"] == "theirs"


async def test_fallbacks() -> None:
    async with fleet(
        {}, {"models": ["small"]}, {"models": ["tiny"]}, fallbacks={"m": ["small", "tiny"]}
    ) as (router, _):
        told = await explained(router)
        assert [plan["model"] for plan in told["plans"]] == ["m", "small", "tiny"]
        assert [tried(told, plan) for plan in range(3)] == [["e0"], ["e1"], ["e2"]]
        assert told["chosen"]["endpoint"] == "e0"
        await call_admin(router, "POST", "/endpoints/e0/drain")
        told = await explained(router)
        assert told["plans"][0]["why"] == "no endpoint can be asked"
        assert told["chosen"] == {"endpoint": "e1", "model": "small", "why": "least-loaded"}
        assert told["request"]["body"]["model"] == "small"
        assert (await router.ask()).headers["X-Pointsman-Endpoint"] == "e1"


async def test_no_fallback_while_a_request_waits() -> None:
    async with fleet({"max_in_flight": 1}, {"models": ["small"]}, fallbacks={"m": ["small"]}) as (
        router,
        _,
    ):
        with router.occupied("e0"):
            told = await explained(router)
            assert [plan["waits"] for plan in told["plans"]] == [True, False]
            assert (told["chosen"], told["request"]) == (None, None)
            assert tried(told, 1) == ["e1"]


async def test_fallbacks_of_what_nobody_serves() -> None:
    async with fleet({}, fallbacks={"gone": ["nowhere", "m"]}) as (router, _):
        told = await explained(router, {"model": "gone", "input": "hi"})
        codes = [plan["error"] and plan["error"]["code"] for plan in told["plans"]]
        assert codes == ["model_not_found", "model_not_found", None]
        assert left_out(told) == {"e0": "not_served"}
        assert told["chosen"]["model"] == "m"


async def test_it_cannot_be_reached() -> None:
    async with (
        refused_port() as down,
        routing(endpoint(down, "chat"), admin=ADMIN) as router,
    ):
        await router.ask()
        told = await explained(router)
        assert told["chosen"]["why"] == "nothing better is left"
