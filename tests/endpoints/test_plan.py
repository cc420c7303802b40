"""Which endpoints can serve a request, and what it is told when none can."""

from __future__ import annotations

from typing import Any

import pytest

from router.balance.capability import Abilities, Feature
from router.core.exchange import Operation
from router.dialects.responses.sealing import seal
from router.endpoints.deployment import Deployment
from router.endpoints.plan import LACKS_CONTEXT, LACKS_FEATURE, Plan, able, issuers
from router.endpoints.registry import Group
from router.errors import InvalidRequest
from tests.support.depot import Depot, asking, backend
from tests.support.exchanges import an_exchange

TOOLS = [{"type": "function", "name": "f", "parameters": {}}]
IMAGE = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]
CHAT_IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
SCHEMA = {"type": "json_schema", "name": "s", "schema": {}}
WORDS = "word " * 2000
"""Ten thousand characters: at four to a token, of which four fifths are sure, 2000 tokens."""


def can(**capabilities: Any) -> dict[str, Any]:
    return {"capabilities": {"m": capabilities}}


async def group_of(*backends: dict[str, Any]) -> Group:
    return await Depot(*backends).registry.group("m")


def names(deployments: Any) -> str:
    return "".join(deployment.endpoint.name for deployment in deployments)


def able_to(group: Group, body: dict[str, Any], *, truncates: bool = False) -> Any:
    """Those that are able to serve a body of Responses, or of a chat."""
    operation = Operation.CHAT if "messages" in body else Operation.RESPONSES
    exchange = an_exchange(operation=operation, body={"model": "m", **body})
    return able(group, exchange, truncates=truncates)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param({"input": "hi"}, "abcd", id="nothing special"),
        pytest.param({"input": "hi", "tools": TOOLS}, "acd", id="tools"),
        pytest.param({"input": "hi", "tools": []}, "abcd", id="no tools"),
        pytest.param({"input": "hi", "tools": [{"type": "web_search"}]}, "abcd", id="hosted"),
        pytest.param({"input": IMAGE}, "abd", id="images"),
        pytest.param({"messages": CHAT_IMAGE}, "abd", id="images, chat"),
        pytest.param({"input": IMAGE, "tools": TOOLS}, "ad", id="images and tools"),
        pytest.param({"input": WORDS}, "abc", id="long"),
        pytest.param({"messages": [{"role": "user", "content": WORDS}]}, "abc", id="long, chat"),
        pytest.param({"input": "hi", "instructions": WORDS, "tools": TOOLS}, "ac", id="both"),
    ],
)
async def test_those_that_can_serve_it_are_asked(body: dict[str, Any], expected: str) -> None:
    group = await group_of(
        backend("a", "m"),
        backend("b", "m", **can(tools=False)),
        backend("c", "m", **can(vision=False, context_length=2000)),
        backend("d", "m", **can(context_length=1999)),
    )
    assert names(able_to(group, body)) == expected


async def test_what_may_be_cut_goes_where_it_fits_whole_and_else_anywhere() -> None:
    body = {"input": WORDS}
    small, large = backend("a", "m", context_length=100), backend("b", "m", context_length=2000)
    assert names(able_to(await group_of(small, large), body, truncates=True)) == "b"
    tiny = backend("c", "m", context_length=10)
    group = await group_of(small, tiny)
    assert names(able_to(group, body, truncates=True)) == "ac"
    with pytest.raises(InvalidRequest):
        able_to(group, body)


async def test_what_cannot_be_said_for_sure_is_sent() -> None:
    """An estimate that is a little too high must not refuse what would fit."""
    group = await group_of(backend("a", "m", context_length=1000))
    assert able_to(group, {"input": "x" * 5000})
    with pytest.raises(InvalidRequest):
        able_to(group, {"input": "x" * 5008})


@pytest.mark.parametrize(
    ("capabilities", "body", "code", "param", "message"),
    [
        pytest.param(
            [{"tools": False}],
            {"input": "hi", "tools": TOOLS},
            LACKS_FEATURE,
            "tools",
            "No endpoint that serves 'm' supports function tools.",
            id="tools",
        ),
        pytest.param(
            [{"vision": False}, {"vision": False}],
            {"messages": CHAT_IMAGE},
            LACKS_FEATURE,
            "messages",
            "No endpoint that serves 'm' supports images in the input (vision).",
            id="vision",
        ),
        pytest.param(
            [{"vision": False}, {"json_schema": False}],
            {"input": IMAGE, "text": {"format": SCHEMA}},
            LACKS_FEATURE,
            "text.format",
            "No endpoint that serves 'm' supports a JSON schema for the answer and images in the "
            "input (vision) at once.",
            id="one has this, one has that",
        ),
        pytest.param(
            [{"context_length": 100}, {"context_length": 1999}],
            {"input": WORDS},
            LACKS_CONTEXT,
            "input",
            "The request has about 2000 tokens; the largest context for 'm' is 1999.",
            id="context",
        ),
        pytest.param(
            [{"context_length": 10, "tools": True}, {"tools": False}],
            {"messages": [{"role": "user", "content": WORDS}], "tools": TOOLS},
            LACKS_CONTEXT,
            "messages",
            "tokens; the largest context for 'm' is 10.",
            id="what has tools is too small",
        ),
    ],
)
async def test_what_a_request_is_told_that_nobody_can_serve(
    capabilities: list[dict[str, Any]], body: dict[str, Any], code: str, param: str, message: str
) -> None:
    group = await group_of(
        *(backend(f"e{number}", "m", **can(**each)) for number, each in enumerate(capabilities))
    )
    with pytest.raises(InvalidRequest) as caught:
        able_to(group, body)
    assert message in caught.value.message
    assert (caught.value.code, caught.value.param) == (code, param)


async def test_what_was_learned_counts_like_what_is_configured() -> None:
    depot = Depot(backend("a", "m"), backend("b", "m"), backend("c", "m", **can(tools=True)))
    for name in "ac":
        depot.deployment(name).learn(Abilities(Feature.TOOLS), 0.0)
    depot.registry.catalogue_changed()
    plan = await depot.plan(asking(tools=TOOLS))
    assert names(plan.deployments) == "bc"  # what is configured to be there stays


async def test_what_was_learned_is_forgotten() -> None:
    depot = Depot(backend("a", "m"))
    deployment = depot.deployment("a")
    deployment.learn(Abilities(Feature.TOOLS), 0.0)
    deployment.learn(Abilities(context=100), 1000.0)
    deployment.reassess(4600.0)
    assert (deployment.lacks, deployment.context) == (int(Feature.TOOLS), 100)
    deployment.reassess(4601.0)
    assert (deployment.lacks, deployment.context) == (0, None)


@pytest.mark.parametrize(
    ("fields", "context"),
    [
        pytest.param({}, None, id="unknown"),
        pytest.param({"context_length": 500}, 500, id="of the endpoint"),
        pytest.param({"context_length": 500, **can(context_length=9)}, 9, id="of the model"),
        pytest.param({"dialect": "ollama", "num_ctx": 700}, 700, id="what Ollama is told"),
    ],
)
async def test_where_the_context_is_known_from(fields: dict[str, Any], context: int | None) -> None:
    assert Depot(backend("a", "m", **fields)).deployment("a").context == context


async def test_what_failed_or_cannot_serve_it_is_not_left() -> None:
    group = await group_of(*(backend(name, "m") for name in "abc"))
    plan = Plan(group, group.deployments, "caller")
    a, b, c = group.deployments
    assert names(plan.left) == "abc"
    plan.tried.append(b)
    assert names(plan.left) == "ac"
    plan.drop(a)
    assert (names(plan.deployments), names(plan.left)) == ("bc", "c")
    plan.drop(c)
    assert not plan.left
    plan.tried.clear()
    assert names(plan.left) == "b"


async def test_a_plan_follows_who_serves_the_model() -> None:
    depot = Depot(*(backend(name, "m") for name in "abc"))
    plan = await depot.plan(asking(tools=TOOLS))
    plan.drop(depot.deployment("a"))
    plan.tried.append(depot.deployment("b"))
    unable = backend("e", "m", **can(tools=False))
    depot.apply(*(backend(name, "m") for name in "abd"), unable)
    plan.follow(await depot.registry.group("m"))
    assert names(plan.deployments) == "bd"
    assert names(plan.left) == "d"
    depot.apply(unable)
    with pytest.raises(InvalidRequest):
        plan.follow(await depot.registry.group("m"))


async def test_a_plan_that_was_made_by_hand_stays_as_it_is() -> None:
    depot = Depot(*(backend(name, "m") for name in "abc"))
    group = await depot.registry.group("m")
    plan = Plan(group, group.deployments[:1], "caller")
    plan.follow(Group("m", group.deployments))
    assert plan.group is group
    assert names(plan.deployments) == "a"


def reasoning(deployment: Deployment, blob: str = "blob") -> dict[str, Any]:
    return {"type": "reasoning", "encrypted_content": seal(blob, deployment.endpoint.account)}


async def test_issuers_are_those_of_the_account_that_encrypted_last() -> None:
    keys = {"a": "sk-1", "b": "sk-1", "c": "sk-2"}
    url = "http://api:1"
    depot = Depot(*(backend(name, "m", url=url, api_key=key) for name, key in keys.items()))
    group = await depot.registry.group("m")
    message = {"role": "user", "content": "hi"}
    first, last = reasoning(depot.deployment("a")), reasoning(depot.deployment("c"))
    assert names(issuers(group, {"input": [message, first, message]})) == "ab"
    assert names(issuers(group, {"input": [first, last, message]})) == "c"
    assert names(issuers(group, {"input": [last, first, message]})) == "ab"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(None, id="nothing"),
        pytest.param("hi", id="text"),
        pytest.param([], id="empty"),
        pytest.param([{"role": "user", "content": "hi"}, "odd", None, 1], id="odd items"),
        pytest.param([{"type": "reasoning", "encrypted_content": "unmarked"}], id="unmarked"),
        pytest.param([{"type": "reasoning", "encrypted_content": None}], id="null"),
        pytest.param([{"type": "reasoning", "encrypted_content": seal("x", "gone")}], id="gone"),
    ],
)
async def test_most_requests_bring_back_nothing(given: Any) -> None:
    group = await group_of(backend("a", "m"), backend("b", "m"))
    assert not issuers(group, {"input": given})


async def test_reasoning_goes_to_its_issuer_whatever_the_load() -> None:
    depot = Depot(backend("a", "m"), backend("b", "m"))
    for _ in range(30):
        depot.deployment("a").take()
    plan = await depot.plan(asking(input=[reasoning(depot.deployment("a")), {"content": "go on"}]))
    assert names(plan.preferred) == "a"
    assert (await depot.selector.reserve(plan)).deployment is depot.deployment("a")


HISTORY = [
    {"role": "user", "content": "Once upon a time"},
    {"role": "assistant", "content": "there was a router."},
    {"role": "user", "content": "Go on."},
]


async def answered_at(depot: Depot, name: str, body: dict[str, Any]) -> None:
    """This request has been answered there."""
    plan = await depot.plan(asking(**body))
    plan.deployments = [depot.deployment(name)]
    reservation = await depot.selector.reserve(plan)
    depot.selector.answered(reservation, 0.1)
    depot.selector.release(reservation)


async def test_a_conversation_stays_where_it_was_within_the_bound() -> None:
    depot = Depot(*(backend(name, "m", max_in_flight=4) for name in "abcd"), affinity=0.25)
    await answered_at(depot, "c", {"input": HISTORY[:1]})
    chosen = []
    for _ in range(3):
        plan = await depot.plan(asking(input=HISTORY))
        chosen.append((await depot.selector.reserve(plan)).deployment.endpoint.name)
    assert chosen[:2] == ["c", "c"]
    assert chosen[2] != "c"
    elsewhere = await depot.plan(asking(input=HISTORY[1:]))
    assert not elsewhere.preferred


@pytest.mark.parametrize(
    ("affinity", "known"), [pytest.param(0.0, "", id="off"), pytest.param(0.25, "b", id="on")]
)
async def test_affinity_can_be_switched_off(affinity: float, known: str) -> None:
    depot = Depot(backend("a", "m"), backend("b", "m"), affinity=affinity)
    await answered_at(depot, "b", {"input": HISTORY})
    plan = await depot.plan(asking(input=HISTORY))
    assert names(plan.preferred) == known
    assert bool(plan.prints) == bool(known)


async def test_where_a_conversation_was_may_be_gone() -> None:
    depot = Depot(backend("a", "m"), backend("b", "m"), backend("c", "m"))
    await answered_at(depot, "b", {"input": HISTORY})
    depot.apply(backend("a", "m"), backend("c", "m"))
    assert not (await depot.plan(asking(input=HISTORY))).preferred


async def test_the_only_endpoint_needs_no_memory() -> None:
    depot = Depot(backend("a", "m"))
    plan = await depot.plan(asking(input=HISTORY))
    assert not plan.prints
    assert not plan.preferred
