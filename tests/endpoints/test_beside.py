"""A URL without its /v1, or in the wrong dialect: what would have answered is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from router.endpoints import beside as beside_module
from router.endpoints.beside import beside, hint
from router.probing.capabilities import ProbeLimits, probe_endpoint
from router.probing.endpoint import probe
from router.upstream.adapters import connect
from tests.support.router import routing
from tests.support.upstream import Upstream, Wire, by_path, json_answer, silent
from tests.support.waiting import until
from tests.support.watched import one, watched

OPENAI = {"/v1/models": {"data": [{"id": "m"}]}}
OLLAMA = {"/api/tags": {"models": [{"name": "m"}]}}
BOTH = {**OPENAI, **OLLAMA}

OFTEN = {"health_interval": 0.05}

# what there is, the path of the configured URL, the dialect, and what the hint says of it
SLIPS = [
    (OPENAI, "", "chat", ["{url}/v1/models answers: set url: {url}/v1"]),
    (OPENAI, "", "responses", ["{url}/v1/models answers: set url: {url}/v1"]),
    (OPENAI, "", "ollama", ["{url}/v1/models answers: set url: {url}/v1, dialect: chat"]),
    (OPENAI, "/v1", "ollama", ["{url}/v1/models answers: set dialect: chat"]),
    (OLLAMA, "/v1", "ollama", ["{url}/api/tags answers: set url: {url}"]),
    (OLLAMA, "", "chat", ["{url}/api/tags answers: set dialect: ollama"]),
    (OLLAMA, "/v1", "chat", ["{url}/api/tags answers: set url: {url}, dialect: ollama"]),
    (
        BOTH,
        "",
        "chat",
        [
            "{url}/v1/models answers: set url: {url}/v1",
            "{url}/api/tags answers: set dialect: ollama",
        ],
    ),
    ({}, "", "chat", ["nor does anything at {url}/v1/models, {url}/api/tags, {url}/v1/api/tags"]),
]


@asynccontextmanager
async def serving(lists: dict[str, Any]) -> AsyncIterator[tuple[str, list[str]]]:
    """A server with these lists, and the paths it was asked for."""
    asked: list[str] = []
    scripts = {path: json_answer(value) for path, value in lists.items()}
    if OPENAI.items() <= lists.items():
        scripts["/v1/chat/completions"] = json_answer({"error": {"message": "no messages"}}, 400)

    async def answer(wire: Wire) -> None:
        asked.append(wire.request.path)
        await by_path(scripts)(wire)

    async with Upstream(default=answer, on_get=answer) as upstream:
        yield upstream.address, asked


@pytest.mark.parametrize(("lists", "path", "dialect", "says"), SLIPS)
async def test_check_probe_and_log_say_it(
    lists: dict[str, Any], path: str, dialect: str, says: list[str]
) -> None:
    async with serving(lists) as (url, _):
        settings = one(url + path, dialect)
        wanted = [text.format(url=url) for text in says]

        checked = await probe(settings)
        assert checked.error is not None
        assert all(text in checked.error for text in wanted), checked.error

        deadline = asyncio.get_running_loop().time() + 60
        report = await probe_endpoint(
            settings, [], ProbeLimits(5.0, deadline), told=lambda model: None
        )
        assert all(text in report.note for text in wanted), report.note

        with capture_logs() as log:
            async with watched(settings) as fleet:
                await until(lambda: any("hint" in entry for entry in log))
                await fleet.more()
                problem = fleet["one"].problem or ""
        hints = [entry["hint"] for entry in log if "hint" in entry]
        assert len(hints) == 1, "once, and not after every probe"
        assert all(text in hints[0] and text in problem for text in wanted)


async def test_what_lists_its_models_is_not_looked_beside() -> None:
    async with serving(OPENAI) as (url, asked), watched(one(url + "/v1", "chat")) as fleet:
        await fleet.more()
        assert set(asked) == {"/v1/models"}
        assert fleet["one"].problem is None


async def test_a_dialect_that_is_spoken_beside_the_url() -> None:
    """It lists its models in both places, and answers requests in one."""
    lists = {**OPENAI, "/models": OPENAI["/v1/models"]}
    async with serving(lists) as (url, _):
        result = await probe(one(url, "chat"))
        assert (result.error, result.speaks) == (None, ())
        assert result.hint == f"{url}/v1/chat/completions answers: set url: {url}/v1"
        assert not (await probe(one(url + "/v1", "chat"))).hint


@pytest.mark.parametrize(
    ("path", "dialect", "says"),
    [
        ("", "chat", "{url}/v1/chat/completions answers: set url: {url}/v1"),
        ("/v1", "responses", "{url}/v1/chat/completions answers: set dialect: chat"),
    ],
)
async def test_requests_that_meet_404_are_told_like_that_once(
    path: str, dialect: str, says: str
) -> None:
    """The router logs what ``pointsman check`` says, as soon as a request has met it."""
    lists = {**OPENAI, "/models": OPENAI["/v1/models"]}
    async with serving(lists) as (url, asked):
        settings = one(url + path, dialect)
        wanted = says.format(url=url)
        assert (await probe(settings)).hint == wanted
        asked.clear()
        async with routing(settings.model_dump(exclude_unset=True), balance=OFTEN) as router:

            def hints() -> list[str]:
                return [entry["hint"] for entry in router.log if "hint" in entry]

            async def more_probes() -> None:
                enough = asked.count(path + "/models") + 2
                await until(lambda: asked.count(path + "/models") >= enough)

            await more_probes()
            assert "/v1/chat/completions" not in asked, "nobody is asked before a request was"
            assert (await router.ask()).status == 404
            await until(lambda: hints() != [])
            for _ in range(3):
                assert (await router.ask()).status >= 400
                await more_probes()
        assert hints() == [wanted]
        assert asked.count("/v1/chat/completions") == 1


async def test_a_model_that_is_not_found_is_no_slip() -> None:
    """Its endpoint takes requests: there is nothing to say, and nothing to ask beside it."""
    missing = json_answer({"error": {"message": "model 'm' not found"}}, 404)
    async with Upstream(default=missing) as upstream:
        settings = one(upstream.address + "/v1", "chat").model_dump(exclude_unset=True)
        async with routing(settings, balance=OFTEN) as router:
            assert (await router.ask()).status == 404
            again = len(upstream.probes) + 2
            await until(lambda: len(upstream.probes) >= again)
        assert not [entry for entry in router.log if "hint" in entry]
        assert {probe.path for probe in upstream.probes} == {"/v1/models"}
        assert not [request for request in upstream.requests if request.body == b"{}"]


async def test_what_does_not_answer_is_not_waited_for() -> None:
    """Whoever accepts connections and says nothing costs a bounded time."""
    async with Upstream(default=silent, on_get=silent) as upstream:
        settings = one(upstream.address, "chat")
        said = await hint(settings, connect, 0.05)
        assert said.startswith("nor does anything at")


@pytest.mark.parametrize(
    ("url", "other"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/v1", "http://h:1"),
        ("http://h/a", "http://h/a/v1"),
    ],
)
def test_the_key_goes_to_the_same_origin_only(url: str, other: str) -> None:
    assert beside(url) == other
    tried = list(beside_module._others(one(url, "chat")))
    assert {settings.url for settings in tried} == {url, other}
