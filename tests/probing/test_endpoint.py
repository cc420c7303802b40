"""What ``pointsman check`` learns from an endpoint, over real sockets."""

from __future__ import annotations

from typing import Any

import pytest

from router.probing.endpoint import ProbeResult, probe
from router.settings.schema import Dialect, EndpointSettings
from router.simulate import create_backend
from tests.support.fleet import DIALECTS, listening
from tests.support.upstream import Upstream, by_path, json_answer, refused_port, whole

MODELS = {"data": [{"id": "m"}], "models": [{"name": "m"}]}


async def probed(url: str, dialect: str = "chat", **fields: Any) -> ProbeResult:
    timeouts = {"connect": 0.3, "first_byte": 0.3, "total": 1}
    return await probe(
        EndpointSettings.model_validate(
            {"name": "one", "url": url, "dialect": dialect, "timeouts": timeouts, **fields}
        )
    )


def answering(status: int, body: Any, listing: int = 200) -> Upstream:
    """A backend that lists its models and answers every POST so."""
    answer = whole(body.encode(), status) if isinstance(body, str) else json_answer(body, status)
    return Upstream(default=answer, on_get=json_answer(MODELS, listing))


@pytest.mark.parametrize(
    ("backend", "path", "speaks"),
    [
        ("responses", "/v1", ("responses", "chat")),
        ("chat", "/v1", ("chat",)),
        ("ollama", "", ("ollama",)),
        ("ollama", "/v1", ("chat",)),
        ("chat", "", ()),
        ("messages", "/v1", ("messages",)),
    ],
)
@pytest.mark.parametrize("configured", DIALECTS)
async def test_what_a_backend_speaks_whatever_is_configured(
    backend: Dialect, path: str, speaks: tuple[str, ...], configured: Dialect
) -> None:
    async with listening(create_backend(backend, ["m"])) as url:
        result = await probed(url + path, configured)
    assert result.speaks == speaks
    lists = configured == "ollama" if (backend, path) == ("ollama", "") else configured != "ollama"
    if lists and speaks:
        assert (result.models, result.error) == (("m",), None)
    else:
        assert result.models == ()
        assert result.error is not None
        assert result.error.startswith("HTTP 404 for /")
    assert 0 < result.latency < 10


@pytest.mark.parametrize(
    ("status", "body", "takes"),
    [
        (400, {"error": {"message": "Missing required parameter: 'model'."}}, True),
        (422, {"detail": [{"msg": "field required"}]}, True),
        (404, {"error": {"message": "The model '' does not exist."}}, True),
        (404, {"detail": "Not Found"}, False),
        (404, {"error": {"message": "Invalid URL (POST /responses)"}}, False),
        (404, "404 page not found", False),
        (405, {"detail": "Method Not Allowed"}, False),
        (401, {"error": {"message": "Incorrect API key provided."}}, False),
        (500, {"error": "out of order"}, False),
        (200, {"error": "Unexpected endpoint or method."}, False),
        (200, {"choices": []}, True),
        (200, "data: {}\n\n", True),
    ],
)
async def test_how_a_path_is_known_to_exist(status: int, body: Any, takes: bool) -> None:
    async with answering(status, body) as upstream:
        result = await probed(upstream.address)
    assert result.speaks == (DIALECTS if takes else ())
    assert (result.models, result.error) == (("m",), None)


async def test_it_costs_no_token_and_sends_the_key() -> None:
    async with answering(400, {}) as upstream:
        await probed(upstream.address, api_key="sk-upstream")
    asked = [*upstream.probes, *upstream.requests]
    assert [request.method for request in asked] == ["GET", "POST", "POST", "POST", "POST"]
    for request in asked:
        assert request.headers["authorization"] == "Bearer sk-upstream"
        if request.method == "POST":
            assert request.body == b"{}"  # without a model there is nothing to answer


@pytest.mark.parametrize(
    ("listing", "error"),
    [(401, "it refuses the api_key"), (404, "HTTP 404"), (500, "HTTP 500")],
)
async def test_models_that_are_not_listed(listing: int, error: str) -> None:
    async with answering(400, {}, listing) as upstream:
        result = await probed(upstream.address)
    assert result.models == ()
    assert result.error is not None
    assert error in result.error
    assert result.speaks == (DIALECTS if listing == 404 else ())


async def test_nobody_there() -> None:
    async with refused_port() as url:
        result = await probed(url)
    assert (result.speaks, result.models) == ((), ())
    assert result.error is not None
    assert result.error.startswith("No connection to endpoint 'one'")


@pytest.mark.parametrize(
    ("owner", "fields", "advised"),
    [
        ("llamacpp", {}, True),
        ("llamacpp", {"stream_whole_answers": False}, False),
        ("llamacpp", {"stream_whole_answers": True}, False),
        ("vllm", {}, False),
    ],
)
async def test_an_engine_that_outlives_its_clients_is_named(
    owner: str, fields: dict[str, Any], advised: bool
) -> None:
    models = json_answer({"data": [{"id": "m", "owned_by": owner}]})
    refuse = json_answer({"error": {"message": "'messages' is missing"}}, 400)
    takes = by_path({"/v1/chat/completions": refuse})
    async with Upstream(default=takes, on_get=by_path({"/v1/models": models})) as upstream:
        result = await probed(f"{upstream.address}/v1", **fields)
    assert result.models == ("m",)
    assert ("stream_whole_answers: true" in result.hint) == advised
