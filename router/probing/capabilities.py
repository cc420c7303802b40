"""Asks an endpoint, one model after another, what they can do.

Requests go out as a client's would, through the adapter of the endpoint's dialect. What Ollama
tells of its models without loading them is enough for it, unless ``deep`` asks them all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import orjson

from router.core.exchange import ClientRequest, Exchange, ExchangeContext, Operation
from router.core.response_lifecycle import new_builder
from router.core.upstream import LoadRequest, UpstreamCall, redacted
from router.endpoints.beside import hint, is_a_slip
from router.endpoints.catalogue import Catalogue
from router.endpoints.listing import Listing, list_models
from router.errors import (
    InvalidRequest,
    NotSupported,
    RouterError,
    UpstreamError,
    UpstreamFailure,
    UpstreamModelMissing,
    UpstreamRejected,
    UpstreamUnavailable,
)
from router.probing.configuration import ProbedEndpoint, ProbedModel
from router.probing.ollama import context_in_memory, findings_of
from router.probing.questions import PLAIN, QUESTIONS, Finding
from router.response.decoder import StreamDecoder, upstream_message
from router.settings.schema import EndpointSettings
from router.upstream.adapters import connect, make_adapter
from router.upstream.http1 import HttpTransport

__all__ = ["MAX_MODELS", "ProbeLimits", "probe_endpoint"]

MAX_MODELS: Final = 20
"""So many models of an endpoint are asked, unless they are named."""

T = TypeVar("T")

_REFUSALS: Final = (UpstreamRejected, UpstreamModelMissing, InvalidRequest, NotSupported)
_LIST_SECONDS: Final = 10.0
_TIME_IS_UP: Final = "the time for the whole probe is up"


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """``seconds`` for each request; at ``until``, in the loop's time, everything is over."""

    seconds: float
    until: float


async def probe_endpoint(
    endpoint: EndpointSettings,
    wanted: Sequence[str],
    limits: ProbeLimits,
    *,
    deep: bool = False,
    told: Callable[[str], None],
) -> ProbedEndpoint:
    """Ask about the models ``wanted``, by the clients' or the endpoint's names; by default about
    those that are configured or listed. ``told`` hears of each before it is asked about.
    """
    transport = HttpTransport(endpoint)
    try:
        return await _Probe(endpoint, transport, limits, deep).run(wanted, told)
    finally:
        await transport.close()


class _Probe:
    """One endpoint."""

    def __init__(
        self, endpoint: EndpointSettings, transport: HttpTransport, limits: ProbeLimits, deep: bool
    ) -> None:
        self._endpoint = endpoint
        # What is configured by now must not change the questions.
        self._adapter = make_adapter(endpoint.model_copy(update={"capabilities": {}}))
        self._transport = transport
        self._limits = limits
        self._deep = deep or endpoint.dialect != "ollama"
        self._loop = asyncio.get_running_loop()

    async def run(self, wanted: Sequence[str], told: Callable[[str], None]) -> ProbedEndpoint:
        """Ask about every model, unless nobody is there or the time is up."""
        listing = await list_models(self._adapter, self._transport, _LIST_SECONDS)
        names, problem, note = _chosen(self._endpoint, listing, wanted)
        if is_a_slip(listing):
            note = "; ".join(filter(None, [note, await hint(self._endpoint, connect)]))
        contexts = {model.name: model.context_length for model in listing.models}
        reports: list[ProbedModel] = []
        for model in names:
            if not problem and self._time_is_up:
                problem = _TIME_IS_UP
            if problem:
                reports.append(ProbedModel(model, problem="not asked"))
                continue
            told(model)
            try:
                reports.append(await self._about(model, contexts.get(model)))
            except UpstreamUnavailable as error:
                problem = self._words(error)
                reports.append(ProbedModel(model, problem="not asked"))
        name, url = self._endpoint.name, self._endpoint.url
        return ProbedEndpoint(name, url, tuple(reports), problem, note)

    async def _about(self, model: str, context: int | None) -> ProbedModel:
        """Everything about one model; raises UpstreamUnavailable when nobody is there."""
        findings: dict[str, Finding] = {}
        problem = ""
        if context is not None:
            findings["context_length"] = Finding(context)
        answers, unasked = await self._asked(model) if self._deep else ({}, "")
        if self._endpoint.dialect == "ollama":  # now, since a model in memory tells more
            shown, problem = await self._shown(model)
            findings |= shown
        for field, finding in answers.items():
            if finding.value is not None or field not in findings:
                findings[field] = finding
        return ProbedModel(model, findings, unasked or problem)

    async def _asked(self, model: str) -> tuple[dict[str, Finding], str]:
        """What the model's answers show, and why not all of it could be asked."""
        plain = await self._found(partial(self._answer, model, PLAIN), lambda _: Finding(True))
        if plain.value is not True:
            return {}, plain.why
        findings = {}
        for question in QUESTIONS:
            ask = partial(self._answer, model, question.ask)
            findings[question.field] = await self._found(ask, question.judge)
        if self._endpoint.dialect == "chat":
            findings["stream_usage"] = await self._found(partial(self._streamed, model), _counted)
        return findings, _TIME_IS_UP if self._time_is_up else ""

    async def _shown(self, model: str) -> tuple[dict[str, Finding], str]:
        """What Ollama tells of a model, or why it tells nothing."""
        show = LoadRequest("/api/show", orjson.dumps({"model": model}))
        try:
            status, body = await self._transport.post(show, _LIST_SECONDS)
            if status != 200:
                return {}, f"HTTP {status} for /api/show"
            _, loaded = await self._transport.get("/api/ps", _LIST_SECONDS)
            in_memory = context_in_memory(orjson.loads(loaded), model)
            return findings_of(orjson.loads(body), self._endpoint.num_ctx, in_memory), ""
        except orjson.JSONDecodeError:
            return {}, "what it tells of the model is not JSON"
        except UpstreamError as error:
            if _nobody_is_there(error):
                raise
            return {}, self._words(error)

    async def _found(
        self, ask: Callable[[], Awaitable[T]], judge: Callable[[T], Finding]
    ) -> Finding:
        """What an answer shows, or why there is none. A refusal is a finding too."""
        seconds = min(self._limits.seconds, self._limits.until - self._loop.time())
        if seconds <= 0:
            return Finding(None, _TIME_IS_UP)
        try:
            async with asyncio.timeout(seconds):
                answer = await ask()
        except TimeoutError:
            return Finding(None, f"no answer within {seconds:.0f} s")
        except _REFUSALS as error:
            return Finding(False, f"refused: {self._words(error)}")
        except RouterError as error:
            if _nobody_is_there(error):
                raise
            return Finding(None, self._words(error))
        return judge(answer)

    async def _answer(self, model: str, ask: Mapping[str, Any]) -> Mapping[str, Any]:
        """The final response to a request; raises RouterError, also for one that failed."""
        call = self._call(model, ask, stream=False)
        answer = await self._transport.send(call.request)
        try:
            body = call.decoder.whole(await answer.body())
        finally:
            answer.close()
        response: dict[str, Any] = orjson.loads(body)
        if response.get("status") == "failed":
            raise UpstreamFailure(upstream_message(response.get("error")))
        return response

    async def _streamed(self, model: str) -> StreamDecoder:
        """What has read a whole stream. Raises UpstreamRejected where its token counts are what
        is refused, and other RouterErrors.
        """
        call = self._call(model, PLAIN, stream=True)
        try:
            answer = await self._transport.send(call.request)
        except UpstreamRejected as error:
            if call.retry is not None and call.retry(error):
                raise
            raise UpstreamFailure(f"streams are refused: {error.message}") from error
        try:
            decoder = call.decoder
            while not decoder.ended:
                data = await answer.read()
                decoder.feed(data) if data else decoder.finish()
                if decoder.error is not None:
                    raise decoder.error
            return decoder
        finally:
            answer.close()

    def _call(self, model: str, ask: Mapping[str, Any], *, stream: bool) -> UpstreamCall:
        exchange = Exchange(
            ClientRequest(
                id="probe",
                operation=Operation.RESPONSES,
                route="/v1/responses",
                method="POST",
                headers={},
                remote=None,
                started=self._loop.time(),
            ),
            ExchangeContext(),
        )
        exchange.body = {"model": model, **ask}
        exchange.model = model
        exchange.stream = stream
        return self._adapter.respond(exchange, model, new_builder(exchange.body, muted=not stream))

    @property
    def _time_is_up(self) -> bool:
        return self._loop.time() >= self._limits.until

    def _words(self, error: RouterError) -> str:
        return redacted(self._endpoint, error.message)


def _chosen(
    endpoint: EndpointSettings, listing: Listing, wanted: Sequence[str]
) -> tuple[list[str], str, str]:
    """The endpoint's names of the models to ask about, why there are none, what is left out."""
    catalogue = Catalogue(endpoint)
    if listing.error is None:
        catalogue.update(listing.names)
    own: list[str | None]
    if wanted and listing.error is not None and endpoint.models is None:
        own = [endpoint.aliases.get(name, name) for name in wanted]
    else:
        own = [catalogue.resolve(name) for name in wanted or catalogue.public_names()]
    names = list(dict.fromkeys(name for name in own if name is not None))
    if wanted:
        return names, "", "" if names else "it serves none of the models that are asked for"
    if not names:
        return [], listing.error or "it serves no model", ""
    note = ""
    if len(names) > MAX_MODELS:
        note = f"the first {MAX_MODELS} of {len(names)} models; --model NAME asks about others"
    return names[:MAX_MODELS], "", note


def _counted(decoder: StreamDecoder) -> Finding:
    if decoder.usage is None or decoder.usage.get("estimated"):
        return Finding(False, "ignored: the stream has no token counts")
    return Finding(True)


def _nobody_is_there(error: RouterError) -> bool:
    """Whether no connection could be made."""
    return isinstance(error, UpstreamUnavailable) and error.again
