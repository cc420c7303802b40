"""Stored prompts in create requests, through the whole router."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from router.settings.schema import Dialect
from tests.support.calling import said
from tests.support.fetch import fetch
from tests.support.fleet import DIALECTS
from tests.support.router import Reply, Router, endpoint, routing
from tests.support.schema import faults
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, whole

KEYS = [{"name": "alice", "key": "sk-alice"}, {"name": "bob", "key": "sk-bob"}]
AGENT: dict[str, Any] = {
    "name": "agent",
    "display_name": "Agent",
    "model": "m",
    "instructions": "Be {{tone}}.",
    "input": [{"role": "user", "content": "I am {{who}}."}],
    "temperature": 0.5,
}
VARIABLES = {"tone": "kind", "who": "{{tone}}"}


@pytest.fixture(params=DIALECTS)
async def upstream(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Dialect, Upstream]]:
    dialect: Dialect = request.param
    async with Upstream(default=whole(SPEECH[dialect].whole)) as server:
        yield dialect, server


@pytest.fixture
async def router(upstream: tuple[Dialect, Upstream]) -> AsyncIterator[Router]:
    dialect, server = upstream
    async with routing(endpoint(server, dialect), auth={"keys": KEYS}) as router:
        reply = await send(router, "POST", "/prompts", AGENT)
        assert reply.status == 200, reply.body
        yield router


async def send(
    router: Router, method: str, path: str, body: Any = None, owner: str = "alice"
) -> Reply:
    headers = {"Authorization": f"Bearer sk-{owner}"}
    options = {} if body is None else {"json": body}
    return await fetch(router.http, method, f"{router.url}/v1{path}", headers=headers, **options)


def asked(upstream: tuple[Dialect, Upstream]) -> dict[str, Any]:
    """The last request to the endpoint."""
    body: dict[str, Any] = upstream[1].requests[-1].json
    return body


def heard(upstream: tuple[Dialect, Upstream]) -> list[str]:
    """Every text that the endpoint was sent."""
    body = asked(upstream)
    texts = [body["instructions"]] if "instructions" in body else []
    return [*texts, *(text for _, text in said(upstream[1]))]


async def test_a_prompt_makes_a_whole_request(
    router: Router, upstream: tuple[Dialect, Upstream]
) -> None:
    prompt = {"id": "agent", "variables": VARIABLES}
    reply = await send(router, "POST", "/responses", {"prompt": prompt, "input": "Hello"})
    assert reply.status == 200, reply.body
    assert heard(upstream) == ["Be kind.", "I am {{tone}}.", "Hello"]
    sent = asked(upstream)
    assert "prompt" not in sent
    assert (sent.get("temperature") or sent["options"]["temperature"]) == 0.5
    response = reply.json
    assert response["temperature"] == 0.5
    assert response["instructions"] == "Be kind."
    stored = (await send(router, "GET", "/prompts/agent")).json
    assert response["prompt"] == {"id": stored["id"], "version": "1", "variables": VARIABLES}
    assert faults("Prompt", response["prompt"]) == []
    assert (await send(router, "GET", f"/responses/{response['id']}")).json == response


async def test_what_the_request_says_wins(
    router: Router, upstream: tuple[Dialect, Upstream]
) -> None:
    fields = {"temperature": 1, "instructions": "Mine {{who}}.", "metadata": {"a": "b"}}
    prompt = {"name": "agent", "variables": VARIABLES}
    reply = await send(router, "POST", "/responses", {"prompt": prompt, **fields})
    assert reply.status == 200, reply.body
    assert heard(upstream) == ["Mine {{who}}.", "I am {{tone}}."]
    assert fields.items() <= reply.json.items()


async def test_an_earlier_version(router: Router, upstream: tuple[Dialect, Upstream]) -> None:
    await send(router, "PUT", "/prompts/agent", {"instructions": "New.", "input": None})
    for version, texts in (
        ({"version": "1"}, ["Be kind.", "I am {{tone}}.", "x"]),
        ({"version": 2}, ["New.", "x"]),
        ({}, ["New.", "x"]),
    ):
        prompt = {"id": "agent", "variables": VARIABLES, **version}
        reply = await send(router, "POST", "/responses", {"prompt": prompt, "input": "x"})
        assert reply.status == 200, reply.body
        assert heard(upstream) == texts


MISSING = "missing_required_parameter"


@pytest.mark.parametrize(
    ("prompt", "status", "code", "param"),
    [
        ({"id": "nothing"}, 404, None, "prompt.id"),
        ({"id": "a\u0000b"}, 404, None, "prompt.id"),
        ({"id": "agent", "version": "2"}, 404, None, "prompt.id"),
        ({"id": "agent"}, 400, MISSING, "prompt.variables.tone"),
        ({"id": "agent", "variables": {"tone": "x"}}, 400, MISSING, "prompt.variables.who"),
        ({"id": "agent", "version": "x"}, 400, "invalid_value", "prompt.version"),
        ({}, 400, MISSING, "prompt.id"),
    ],
)
async def test_refused(
    router: Router,
    upstream: tuple[Dialect, Upstream],
    prompt: dict[str, Any],
    status: int,
    code: str | None,
    param: str,
) -> None:
    reply = await send(router, "POST", "/responses", {"prompt": prompt, "input": "x"})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (status, code, param)
    assert upstream[1].requests == []


async def test_another_owners_prompt_is_not_there(router: Router) -> None:
    stored = (await send(router, "GET", "/prompts/agent")).json
    for key in ("agent", stored["id"]):
        body = {"prompt": {"id": key, "variables": VARIABLES}, "input": "x"}
        assert (await send(router, "POST", "/responses", body, "bob")).status == 404


async def test_a_prompt_without_model_or_input(router: Router) -> None:
    await send(router, "POST", "/prompts", {"name": "bare", "instructions": "Hi."})
    for body, param in (({"input": "x"}, "model"), ({"model": "m"}, "input")):
        reply = await send(router, "POST", "/responses", {"prompt": {"id": "bare"}, **body})
        assert (reply.status, reply.error["code"], reply.error["param"]) == (400, MISSING, param)
