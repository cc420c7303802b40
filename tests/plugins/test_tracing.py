"""Traces: what spans there are, what is in them and what is not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from plugins.tracing import names, plugin
from router.core.upstream import UpstreamRequest
from router.settings.schema import EndpointSettings
from router.upstream.http1 import HttpTransport
from tests.support.exchanges import an_exchange
from tests.support.router import API_KEY, endpoint
from tests.support.speech import SPEECH
from tests.support.traced import PROMPT, ask, traced
from tests.support.upstream import Upstream, refused_port, streamed, whole
from tests.support.waiting import until

CHAT = SPEECH["chat"]
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=opaque"}


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What takes the spans of a router with tracing, in place of a collector."""
    memory = InMemorySpanExporter()
    monkeypatch.setattr(plugin, "OTLPSpanExporter", lambda endpoint: memory)
    return memory


def split(exporter: InMemorySpanExporter) -> tuple[list[ReadableSpan], list[ReadableSpan]]:
    """The spans of requests, and those of attempts, as they began."""
    spans = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
    requests = [span for span in spans if span.kind is SpanKind.SERVER]
    return requests, [span for span in spans if span.kind is SpanKind.CLIENT]


def values(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> tuple[str, str]:
    """Trace and span, as they are written in a ``traceparent``."""
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_and_its_attempt(exporter: InMemorySpanExporter, stream: bool) -> None:
    script = streamed(*CHAT.pieces, kind=CHAT.kind) if stream else whole(CHAT.whole)
    async with Upstream(script) as up:
        async with traced(
            endpoint(up, "chat", aliases={"m": "big-llama"}, models=["big-llama"])
        ) as router:
            assert await ask(router, stream=stream) == 200
        address = up.address
    [request], [attempt] = split(exporter)

    assert request.name == "chat m"
    assert request.parent is None
    assert request.status.status_code is StatusCode.UNSET
    given = values(request)
    assert given.pop("pointsman.request.id").startswith("req_")
    assert (given.pop("pointsman.first_output", None) is not None) is stream
    assert given == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": stream,
        "gen_ai.response.model": "m",
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "http.route": "/v1/responses",
        "pointsman.attempts": 1,
        "pointsman.endpoint": "one",
        "pointsman.key": "default",
        "pointsman.outcome": "ok",
    }
    assert attempt.name == "chat big-llama"
    assert attempt.parent == request.context
    given = values(attempt)
    assert given.pop("gen_ai.response.id").startswith("resp_")
    assert (given.pop("gen_ai.response.time_to_first_chunk", 0) > 0) is stream
    assert given == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "big-llama",
        "gen_ai.request.stream": stream,
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 4,
        "server.address": "127.0.0.1",
        "server.port": int(address.rpartition(":")[2]),
        "pointsman.attempt.kind": "first",
        "pointsman.endpoint": "one",
        "pointsman.outcome": "ok",
        "pointsman.usage.provenance": "reported",
    }
    assert request.start_time is not None
    assert attempt.start_time is not None
    assert attempt.end_time is not None
    assert request.start_time <= attempt.start_time <= attempt.end_time


async def test_a_trace_is_continued_and_passed_on(exporter: InMemorySpanExporter) -> None:
    async with Upstream(whole(CHAT.whole)) as up:
        async with traced(endpoint(up, "chat")) as router:
            assert await ask(router, SAMPLED) == 200
        [received] = up.requests
    [request], [attempt] = split(exporter)
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == PARENT
    trace, span = ids(attempt)
    assert trace == TRACE
    assert received.headers["traceparent"] == f"00-{trace}-{span}-01"
    assert received.headers["tracestate"] == "vendor=opaque"


async def test_who_began_a_trace_decides_whether_it_is_recorded(
    exporter: InMemorySpanExporter,
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    async with Upstream(whole(CHAT.whole)) as up:
        async with traced(endpoint(up, "chat")) as router:
            assert await ask(router, headers) == 200
        [received] = up.requests
    assert exporter.get_finished_spans() == ()
    assert received.headers["traceparent"].startswith(f"00-{TRACE}-")
    assert received.headers["traceparent"].endswith("-00")


@pytest.mark.parametrize("given", ["", "nonsense", f"ff-{TRACE}-{PARENT}-01", "00-0-0-01"])
async def test_what_is_no_trace_is_not_continued(
    exporter: InMemorySpanExporter, given: str
) -> None:
    async with (
        Upstream(whole(CHAT.whole)) as up,
        traced(endpoint(up, "chat")) as router,
    ):
        assert await ask(router, {"traceparent": given}) == 200
    [request], [_] = split(exporter)
    assert request.parent is None
    assert ids(request)[0] != TRACE


async def test_endpoints_need_not_be_told(exporter: InMemorySpanExporter) -> None:
    async with Upstream(whole(CHAT.whole)) as up:
        async with traced(endpoint(up, "chat"), tracing={"propagate": False}) as router:
            assert await ask(router, SAMPLED) == 200
        [received] = up.requests
    assert not {"traceparent", "tracestate"} & received.headers.keys()
    [request], [_] = split(exporter)
    assert ids(request)[0] == TRACE


async def test_nothing_is_sampled_at_zero(exporter: InMemorySpanExporter) -> None:
    async with (
        Upstream(whole(CHAT.whole)) as up,
        traced(endpoint(up, "chat"), tracing={"sample": 0}) as router,
    ):
        assert await ask(router) == 200
    assert exporter.get_finished_spans() == ()


async def test_every_attempt_is_a_span(exporter: InMemorySpanExporter) -> None:
    broken = whole(b'{"error": {"message": "out of memory"}}', status=500)
    async with Upstream(broken) as one, Upstream(whole(CHAT.whole)) as two:
        endpoints = [endpoint(one, "chat", priority=1), endpoint(two, "chat", "two", priority=2)]
        async with traced(*endpoints, balance={"policy": "priority"}) as router:
            assert await ask(router) == 200
        [first], [second] = one.requests, two.requests
    [request], attempts = split(exporter)
    assert values(request)["pointsman.attempts"] == 2
    assert [a.parent for a in attempts] == [request.context] * 2
    assert [values(a)["pointsman.endpoint"] for a in attempts] == ["one", "two"]
    assert [values(a)["pointsman.attempt.kind"] for a in attempts] == ["first", "retry"]
    assert [a.status.status_code for a in attempts] == [StatusCode.ERROR, StatusCode.UNSET]
    failed = values(attempts[0])
    assert failed["error.type"]
    assert "gen_ai.usage.input_tokens" not in failed
    told = [received.headers["traceparent"].split("-")[2] for received in (first, second)]
    assert told == [ids(attempt)[1] for attempt in attempts]


async def test_a_request_that_fails(exporter: InMemorySpanExporter) -> None:
    async with refused_port() as address, traced(endpoint(address, "chat")) as router:
        assert await ask(router) == 503
    [request], attempts = split(exporter)
    assert request.status.status_code is StatusCode.ERROR
    given = values(request)
    assert (given["http.response.status_code"], given["pointsman.outcome"]) == (503, "failed")
    assert given["error.type"] == "upstream_unavailable"
    assert attempts
    assert {values(a)["error.type"] for a in attempts} == {"upstream_unavailable"}


async def test_nothing_private_is_in_any_span(exporter: InMemorySpanExporter) -> None:
    key = "sk-client-secret"
    async with (
        Upstream(whole(CHAT.whole)) as up,
        traced(endpoint(up, "chat"), auth={"keys": [{"name": "team", "key": key}]}) as router,
    ):
        headers = {"Authorization": f"Bearer {key}"}
        assert await ask(router, headers, instructions="hush", user="jane") == 200
        assert await ask(router, headers, model="x" * 5000) == 404
    spans = exporter.get_finished_spans()
    assert len(spans) == 3
    told = "".join(span.to_json() for span in spans)
    assert '"pointsman.key": "team"' in told
    for private in (PROMPT, "hush", "jane", CHAT.text, "Hello", key, API_KEY, "x" * 201):
        assert private not in told


async def test_what_the_guards_refuse_and_other_routes_have_no_span(
    exporter: InMemorySpanExporter,
) -> None:
    async with (
        Upstream(whole(CHAT.whole)) as up,
        traced(endpoint(up, "chat"), auth={"keys": [{"name": "team", "key": "sk-team"}]}) as router,
    ):
        assert await ask(router, SAMPLED) == 401
        async with router.http.get(
            router.url + "/v1/models", headers={"Authorization": "Bearer sk-team"}
        ) as response:
            assert response.status == 200
    assert exporter.get_finished_spans() == ()


async def test_an_answer_from_the_cache_has_no_attempt(exporter: InMemorySpanExporter) -> None:
    async with (
        Upstream(whole(CHAT.whole)) as up,
        traced(endpoint(up, "chat"), cache={"mode": "always"}) as router,
    ):
        assert await ask(router, store=False) == 200
        assert await ask(router, store=False) == 200
    requests, attempts = split(exporter)
    assert len(attempts) == 1
    assert "pointsman.endpoint" not in values(requests[1])
    assert values(requests[1])["pointsman.cache"] == "exact"


async def test_a_run_is_a_trace_of_its_own(exporter: InMemorySpanExporter) -> None:
    async with (
        Upstream(streamed(*CHAT.pieces, kind=CHAT.kind)) as up,
        traced(endpoint(up, "chat")) as router,
    ):
        assert await ask(router, SAMPLED, background=True) == 200
        await until(lambda: up.requests)
        await router.idle()
    [submitted, run], [attempt] = split(exporter)
    assert ids(submitted)[0] == TRACE
    assert values(run)["http.route"] == "run"
    assert run.parent is None
    assert attempt.parent == run.context


async def test_a_broken_trace_is_not_felt(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Any:
        raise RuntimeError("a bug")

    async with (
        Upstream(default=whole(CHAT.whole)) as up,
        traced(endpoint(up, "chat")) as router,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(names, "of_attempt", broken)
            assert await ask(router) == 200
        with monkeypatch.context() as patch:
            patch.setattr(names, "of_record", broken)
            assert await ask(router) == 200
        with monkeypatch.context() as patch:
            patch.setattr(names, "of_request", broken)
            assert await ask(router) == 200
        router.forgive("attempt not traced")
        router.forgive("observer broke")


async def test_headers_cannot_bring_others_with_them() -> None:
    settings = EndpointSettings(name="one", url="http://127.0.0.1:9", dialect="chat")
    headers = {"tracestate": "a=b\r\nAuthorization: Bearer mine"}
    with pytest.raises(ValueError, match="not headers"):
        await HttpTransport(settings).send(UpstreamRequest("/chat", b"{}", False, headers))


@pytest.mark.parametrize(
    ("url", "dialect", "provider", "port"),
    [
        ("https://api.openai.com/v1", "responses", "openai", 443),
        ("https://api.mistral.ai/v1", "chat", "mistral_ai", 443),
        ("https://acme.openai.azure.com/openai/v1", "responses", "azure.ai.openai", 443),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/v1", "chat", "aws.bedrock", 443),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "chat", "gcp.gemini", 443),
        ("http://gpu1:8000/v1", "chat", "openai", 8000),
        ("http://gpu1:11434", "ollama", "ollama", 11434),
        ("http://gpu1", "ollama", "ollama", 80),
    ],
)
def test_providers(url: str, dialect: Any, provider: str, port: int) -> None:
    from router.core.exchange import Operation

    exchange = an_exchange(operation=Operation.CHAT)
    settings = EndpointSettings(name="one", url=url, dialect=dialect)
    found = names.of_attempt(exchange, settings, "m")
    assert (found["gen_ai.provider.name"], found["server.port"]) == (provider, port)


def test_without_it_nothing_of_it_is_loaded() -> None:
    """And where it is not installed, the settings are at fault, not a traceback."""
    program = """
import sys
from router import create_app
from router.settings.document import SettingsError
endpoints = [{"name": "one", "url": "http://127.0.0.1:9", "dialect": "chat", "models": ["m"]}]
base = {"endpoints": endpoints, "state": {"url": "sqlite:///:memory:"}}
create_app(base)
print([name for name in sys.modules if name.startswith(("opentelemetry", "plugins.tracing"))])
sys.modules["opentelemetry"] = None
try:
    create_app({**base, "tracing": {"enabled": True}})
except SettingsError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    loaded, problem = done.stdout.splitlines()
    assert loaded == "[]"
    assert "tracing.enabled: needs OpenTelemetry; install the extra 'otel' from" in problem
    assert "pip install '.[otel]'" in problem
