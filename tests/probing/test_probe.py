"""Endpoints that are asked what their models can do, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from router.probing.capabilities import MAX_MODELS, ProbeLimits, probe_endpoint
from router.probing.configuration import ProbedEndpoint, ProbedModel
from router.settings.schema import Dialect, EndpointSettings
from tests.support.fleet import DIALECTS, MODELS, simulated
from tests.support.speech import SPEECH
from tests.support.upstream import (
    Script,
    Upstream,
    Wire,
    by_path,
    json_answer,
    refused_port,
    silent,
    streamed,
    whole,
)

KEY = "sk-upstream-secret"


def endpoint(url: str, dialect: Dialect = "chat", **fields: Any) -> EndpointSettings:
    return EndpointSettings.model_validate(
        {"name": "one", "url": url, "dialect": dialect, "api_key": KEY, **fields}
    )


async def probed(
    settings: EndpointSettings,
    *models: str,
    deep: bool = False,
    seconds: float = 5.0,
    total: float = 30.0,
    told: Callable[[str], None] = lambda model: None,
) -> ProbedEndpoint:
    limits = ProbeLimits(seconds, asyncio.get_running_loop().time() + total)
    return await probe_endpoint(settings, models, limits, deep=deep, told=told)


def values(model: ProbedModel) -> dict[str, Any]:
    return {field: finding.value for field, finding in model.findings.items()}


def why(model: ProbedModel, field: str) -> str:
    return model.findings[field].why


def asks_for(body: dict[str, Any]) -> str:
    """Which of the questions a chat request is."""
    if body.get("stream"):
        return "stream_usage"
    if "tool_choice" in body:
        return "tool_choice"
    if "tools" in body:
        return "tools"
    if "response_format" in body:
        return "json_schema"
    if "reasoning_effort" in body:
        return "reasoning"
    return "plain" if isinstance(body["messages"][0]["content"], str) else "vision"


def refusal(message: str, status: int = 400) -> Script:
    return whole(orjson.dumps({"error": {"message": message}}), status)


def completion(finish: str = "stop", **message: Any) -> Script:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return whole(orjson.dumps({"object": "chat.completion", "choices": [choice]}))


def talking(**answers: Script) -> Upstream:
    """A chat endpoint that answers each question so, and the others with a plain "Yes."."""
    speech = SPEECH["chat"]
    answers.setdefault("stream_usage", streamed(*speech.pieces, kind=speech.kind))

    async def script(wire: Wire) -> None:
        asked = asks_for(upstream.requests[-1].json)
        await answers.get(asked, completion(content="Yes."))(wire)

    upstream = Upstream(default=script)
    return upstream


def asked(upstream: Upstream) -> list[str]:
    return [asks_for(request.json) for request in upstream.requests]


ALL_ASKED = [
    "plain", "tools", "tool_choice", "json_schema", "vision", "reasoning", "stream_usage",
]  # fmt: skip
CALL = {"id": "c", "type": "function", "function": {"name": "ping", "arguments": "{}"}}


CONTEXTS = {"ollama": 32768, "messages": 200_000}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_backend_that_can_do_everything(dialect: Dialect) -> None:
    async with simulated(dialect, models=[MODELS[dialect]]) as (backend,):
        report = await probed(EndpointSettings.model_validate(backend), deep=True)
    (model,) = report.models
    assert report.is_whole
    assert model.model.removesuffix(":latest") == MODELS[dialect]
    found = values(model)
    able = {"tools": True, "tool_choice": True, "json_schema": True, "reasoning": True}
    assert {field: found[field] for field in able} == able
    assert found.get("stream_usage") is (True if dialect == "chat" else None)
    # The simulated model sees that there is an image, and says what Ollama says of it.
    assert found["vision"] is (True if dialect == "ollama" else None)
    assert found.get("context_length") == CONTEXTS.get(dialect)


async def test_what_is_refused_ignored_shown_and_not_known() -> None:
    upstream = talking(
        tools=completion("tool_calls", content=None, tool_calls=[CALL]),
        tool_choice=completion(content="I would rather talk."),
        json_schema=refusal("out of order", 500),
        vision=refusal(f"image input is not supported, {KEY}\nreally"),
        reasoning=refusal("slow down", 429),
    )
    async with upstream:
        report = await probed(endpoint(upstream.address + "/v1"))
        (model,) = report.models
        assert asked(upstream) == ALL_ASKED
        assert {r.headers["authorization"] for r in upstream.requests} == {f"Bearer {KEY}"}
        assert all(r.json["max_tokens"] <= 2048 for r in upstream.requests)
    assert values(model) == {
        "tools": True,
        "tool_choice": False,
        "json_schema": None,
        "vision": False,
        "reasoning": None,
        "stream_usage": True,
    }
    assert "ignored" in why(model, "tool_choice")
    assert "HTTP 500" in why(model, "json_schema")
    assert why(model, "vision") == "refused: image input is not supported, [api_key]\nreally"
    assert why(model, "reasoning") == "slow down"
    assert report.is_whole  # an endpoint that fails for one question was asked all the same


@pytest.mark.parametrize(
    ("script", "value", "words"),
    [
        (refusal("Unknown parameter: 'stream_options'."), False, "refused: Unknown parameter"),
        (refusal("no streams here"), None, "streams are refused: no streams here"),
        (refusal("", 503), None, "unavailable"),
        (completion(content="all at once"), None, "ended before"),
        (
            streamed(*SPEECH["chat"].pieces[:-1], b"data: [DONE]\n\n", kind=SPEECH["chat"].kind),
            False,
            "no token counts",
        ),
        (streamed(SPEECH["chat"].opening, kind=SPEECH["chat"].kind), None, "ended before"),
    ],
)
async def test_token_counts_of_streams(script: Script, value: bool | None, words: str) -> None:
    async with talking(stream_usage=script) as upstream:
        (model,) = (await probed(endpoint(upstream.address + "/v1"))).models
    assert model.findings["stream_usage"].value is value
    assert words in why(model, "stream_usage")


async def test_what_is_configured_does_not_change_the_questions() -> None:
    async with talking() as upstream:
        nothing = {"stream_usage": False, "tools": False, "vision": False}
        settings = endpoint(upstream.address + "/v1", capabilities={"*": nothing})
        (model,) = (await probed(settings)).models
        assert asked(upstream) == ALL_ASKED
        assert "stream_options" in upstream.requests[-1].json
    assert model.findings["stream_usage"].value is True


async def test_a_router_of_others_that_knows_no_endpoint_for_a_question() -> None:
    """It says so with a status that means an unknown model elsewhere."""
    none = "No endpoints found that support tool use."
    async with talking(tools=refusal(none, 404)) as upstream:
        (model,) = (await probed(endpoint(upstream.address + "/v1"))).models
    assert model.findings["tools"].value is False
    assert why(model, "tools") == f"refused: {none}"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (refusal("bge is not for chats"), "refused: bge is not for chats"),
        (refusal("", 500), "failed (HTTP 500)"),
        (refusal("", 401), "refused the router's credentials"),
        (whole(b"{}"), "without choices"),
        (whole(b"nonsense"), "not valid JSON"),
    ],
)
async def test_a_model_that_does_not_even_say_yes_is_asked_no_more(
    script: Script, words: str
) -> None:
    async with talking(plain=script) as upstream:
        report = await probed(endpoint(upstream.address + "/v1", models=["a", "b"]))
        assert asked(upstream) == ["plain", "plain"]
    assert not report.is_whole
    assert all(words in model.problem and not model.findings for model in report.models)


async def test_an_answer_that_does_not_come() -> None:
    async with talking(vision=silent) as upstream:
        report = await probed(endpoint(upstream.address + "/v1"), seconds=1.0)
        (model,) = report.models
        assert asked(upstream) == ALL_ASKED
        assert upstream.requests[4].wire.gone.is_set()
    assert model.findings["vision"].value is None
    assert "no answer within" in why(model, "vision")
    assert model.findings["stream_usage"].value is True
    assert report.is_whole


async def test_the_time_for_everything_is_bounded() -> None:
    async with talking(plain=silent) as upstream:
        settings = endpoint(upstream.address + "/v1", models=["a", "b", "c"])
        report = await probed(settings, seconds=60, total=1.0)
        assert len(upstream.requests) == 1
    assert "the time for the whole probe is up" in report.problem
    assert [model.problem for model in report.models][1:] == ["not asked", "not asked"]
    assert not report.is_whole


async def test_the_time_is_up_in_the_middle_of_a_model() -> None:
    async with talking(json_schema=silent) as upstream:
        report = await probed(endpoint(upstream.address + "/v1"), seconds=60, total=1.5)
    (model,) = report.models
    assert "the time for the whole probe is up" in model.problem
    assert why(model, "vision") == why(model, "stream_usage") == model.problem
    assert not report.is_whole


async def test_nobody_there() -> None:
    async with refused_port() as url:
        report = await probed(endpoint(url, models=["a", "b"]))
        assert "No connection" in report.problem
        assert [model.problem for model in report.models] == ["not asked"] * 2
        report = await probed(endpoint(url))
        assert "No connection" in report.problem
        assert report.models == ()
        report = await probed(endpoint(url, "ollama"), "a")
        assert "No connection" in report.problem
        assert [model.problem for model in report.models] == ["not asked"]
    assert not report.is_whole


async def test_somebody_who_leaves_in_the_middle() -> None:
    async with talking() as upstream:

        async def leave(wire: Wire) -> None:
            assert upstream._server is not None
            upstream._server.close()
            wire.close()
            await wire.gone.wait()

        upstream.scripts.append(leave)
        report = await probed(endpoint(upstream.address + "/v1", models=["a", "b"]))
        assert len(upstream.requests) == 1
    assert "No connection" in report.problem
    assert [model.problem for model in report.models][1:] == ["not asked"]


@asynccontextmanager
async def serving(
    listing: Sequence[dict[str, Any]],
    show: Callable[[dict[str, Any]], Script] | None = None,
    loaded: Any = None,
) -> AsyncIterator[tuple[str, list[str]]]:
    """A server with these models that answers no questions; it keeps the paths of the requests."""
    paths: list[str] = []

    async def answer(wire: Wire) -> None:
        request = wire.request
        paths.append(f"{request.method} {request.path}")
        script = refusal("it does not chat")
        if request.path == "/api/ps":
            script = json_answer(loaded)
        elif request.method == "GET":
            script = json_answer({"data": listing, "models": listing})
        elif request.path == "/api/show" and show is not None:
            script = show(request.json)
        await script(wire)

    async with Upstream(default=answer, on_get=answer) as upstream:
        yield upstream.address, paths


async def test_a_context_that_is_listed() -> None:
    listing: list[dict[str, Any]] = [{"id": "a", "max_model_len": 8192}, {"id": "b"}]
    async with serving(listing) as (url, _):
        report = await probed(endpoint(url + "/v1"))
    assert [values(model) for model in report.models] == [{"context_length": 8192}, {}]
    assert all("it does not chat" in model.problem for model in report.models)


async def test_which_models_are_asked_about() -> None:
    listing = [{"id": f"m{number}"} for number in range(MAX_MODELS + 5)]
    async with serving(listing) as (url, _):
        told: list[str] = []
        report = await probed(endpoint(url), told=told.append)
        assert told == [f"m{number}" for number in range(MAX_MODELS)]
        assert report.note == "the first 20 of 25 models; --model NAME asks about others"
        aliases = {"fast": "m3", "also": "m3"}
        for settings, wanted, models in (
            (endpoint(url), ["m24", "m7", "m24"], ["m24", "m7"]),
            (endpoint(url, aliases=aliases), ["fast", "m3", "also"], ["m3"]),
            (endpoint(url, models=["m1*"]), [], [f"m{n}" for n in (1, *range(10, 20))]),
            (endpoint(url, models=["x", "m2"], aliases=aliases), [], ["x", "m2", "m3"]),
        ):
            report = await probed(settings, *wanted)
            assert [model.model for model in report.models] == models
            assert report.note == ""
        report = await probed(endpoint(url), "elsewhere")
        assert report.models == ()
        assert report.note == "it serves none of the models that are asked for"
        assert report.is_whole


async def test_models_that_are_not_listed_can_be_named() -> None:
    async with talking() as upstream:
        upstream.on_get = whole(b"nothing")
        url = upstream.address + "/v1"
        report = await probed(endpoint(url))
        assert (report.models, report.problem) == ((), "/models is not JSON")
        report = await probed(endpoint(url, aliases={"fast": "m3"}), "fast", "m4")
        assert [model.model for model in report.models] == ["m3", "m4"]
        assert report.is_whole
    async with serving([]) as (url, _):
        report = await probed(endpoint(url))
        assert (report.models, report.problem) == ((), "it serves no model")


async def test_what_ollama_tells_is_enough() -> None:
    listing = [{"name": "big:latest"}, {"name": "old:latest"}, {"name": "odd"}, {"name": "bad"}]

    def show(body: dict[str, Any]) -> Script:
        info = {"general.architecture": "x", "x.context_length": 65536}
        answers: dict[str, Any] = {
            "big:latest": {"capabilities": ["tools", "vision"], "model_info": info},
            "old:latest": {"model_info": info},
        }
        if body["model"] == "bad":
            return whole(b"nothing")
        if body["model"] not in answers:
            return json_answer({"error": "not found"}, 404)
        return json_answer(answers[body["model"]])

    loaded = {"models": [{"name": "old:latest", "context_length": 4096}]}
    async with serving(listing, show, loaded) as (url, paths):
        report = await probed(endpoint(url, "ollama", num_ctx=8192))
        assert set(paths) == {"GET /api/tags", "POST /api/show", "GET /api/ps"}
        big, old, odd, bad = report.models
        assert values(big) == {
            "context_length": 8192,
            "tools": True,
            "vision": True,
            "reasoning": False,
        }
        assert values(old) == {
            "context_length": 8192,
            "tools": None,
            "vision": None,
            "reasoning": None,
        }
        assert odd.problem == "HTTP 404 for /api/show"
        assert bad.problem == "what it tells of the model is not JSON"
        assert not report.is_whole
        report = await probed(endpoint(url, "ollama"), "old")
        assert values(report.models[0])["context_length"] == 4096
        # Asked all the same, it has to answer; what it told stands beside.
        report = await probed(endpoint(url, "ollama"), "big", deep=True)
        assert paths[-3:] == ["POST /api/chat", "POST /api/show", "GET /api/ps"]
        assert "it does not chat" in report.models[0].problem
        assert values(report.models[0])["tools"] is True


async def test_an_answer_says_more_than_ollama_does() -> None:
    async def answer(wire: Wire) -> None:
        if "tools" in wire.request.json:
            error = "registry.ollama.ai/library/a does not support tools"
            await json_answer({"error": error}, 400)(wire)
        else:
            message = {"role": "assistant", "content": "It is red.", "thinking": "Hm."}
            done = {"message": message, "done": True, "done_reason": "stop"}
            await json_answer(done)(wire)

    show = json_answer({"capabilities": ["tools"]})
    upstream = Upstream(models=("a",), default=by_path({"/api/chat": answer, "/api/show": show}))
    async with upstream:
        (model,) = (await probed(endpoint(upstream.address, "ollama"), deep=True)).models
    assert values(model) == {
        "tools": False,
        "tool_choice": False,
        "json_schema": False,
        "vision": True,
        "reasoning": True,
    }
