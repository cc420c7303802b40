"""What the simulated dialects share: the models they serve, their errors, their streams."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

import orjson
from aiohttp import web

from router.simulate import brain
from router.simulate.dialogue import SimulatedAnswer, SimulatedRequest
from router.simulate.fields import BadRequest, Fields, parse_object
from router.simulate.memory import ClientLeft, Memory
from router.simulate.sample import SchemaError

__all__ = [
    "BACKEND",
    "Backend",
    "Dialect",
    "answer",
    "error_middleware",
    "json_answer",
    "new_id",
    "read_fields",
    "stream",
]

Dialect = Literal["responses", "chat", "ollama", "messages"]

_log: Final = logging.getLogger(__name__)
_WRITE_TIMEOUT: Final = 600.0
_BODY_TIMEOUT: Final = 60.0
_CLIENT_CLOSED_REQUEST: Final = 499
_TYPES: Final = {404: "not_found_error", 413: "request_too_large"}


@dataclass(slots=True)
class Backend:
    """One simulated backend. ``pace`` is the pause between the pieces of a stream, in seconds.

    Only Ollama loads models: those of the others are always in memory.
    """

    dialect: Dialect
    models: tuple[str, ...]
    pace: float
    started: int
    memory: Memory = field(default_factory=Memory)

    async def load(
        self,
        request: web.Request,
        model: str,
        kept_for: timedelta | None = None,
        context: int = 0,
    ) -> float:
        """Have a served model in memory; the seconds that took. Raises like ``Memory.use``."""
        if self.dialect != "ollama":
            return 0.0
        return await self.memory.use(request, model, kept_for, context)

    def resolve(self, model: str) -> str:
        """The served name of ``model``; raises BadRequest (404) where it is not served.

        As with Ollama, its ``:latest`` may be left out.
        """
        for name in (model, f"{model}:latest"):
            if name in self.models and (name == model or self.dialect == "ollama"):
                return name
        raise BadRequest(
            f"The model '{model}' does not exist; served here: {', '.join(self.models)}.",
            param="model",
            code="model_not_found",
            status=404,
        )


BACKEND: Final = web.AppKey("backend", Backend)


def new_id(prefix: str) -> str:
    """A fresh id, such as ``resp_`` and 48 hexadecimal digits."""
    return prefix + secrets.token_hex(24)


async def read_fields(request: web.Request) -> Fields:
    """The request's JSON object; raises BadRequest where it is none or does not arrive."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            return parse_object(await request.read())
    except TimeoutError:
        raise BadRequest("The body did not arrive in time.", status=408) from None


def answer(question: SimulatedRequest) -> SimulatedAnswer:
    """Ask the brain; a schema that it cannot fill is the caller's error."""
    try:
        return brain.answer(question)
    except SchemaError as error:
        raise BadRequest(f"Invalid JSON Schema: {error}.", code="invalid_json_schema") from error


def json_answer(body: Any, status: int = 200) -> web.Response:
    """A JSON response."""
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


async def stream(
    request: web.Request, content_type: str, pieces: Iterable[bytes]
) -> web.StreamResponse:
    """Answer piece after piece with a pause after each; a slow reader slows it down.

    A client that leaves ends the stream. Raises TimeoutError where it only stopped reading; the
    server then closes the connection.
    """
    pace = request.app[BACKEND].pace
    response = web.StreamResponse(
        headers={"Content-Type": content_type, "Cache-Control": "no-cache"}
    )
    await response.prepare(request)
    try:
        for piece in pieces:
            async with asyncio.timeout(_WRITE_TIMEOUT):
                await response.write(piece)
            if pace:
                await asyncio.sleep(pace)
        await response.write_eof()
    except ConnectionError:
        _log.debug("%s: the client left before the end", request.path)
    return response


@web.middleware
async def error_middleware(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Give every error the envelope of its API: OpenAI's under ``/v1``, else Ollama's; Anthropic's
    where that is spoken.
    """
    try:
        return await handler(request)
    except BadRequest as error:
        return _error(request, error)
    except ClientLeft:
        return web.Response(status=_CLIENT_CLOSED_REQUEST)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        message = f"{request.method} {request.path}: {error.reason}"
        return _error(request, BadRequest(message, status=error.status))


def _error(request: web.Request, error: BadRequest) -> web.Response:
    backend = request.app[BACKEND]
    if backend.dialect == "ollama" and not request.path.startswith("/v1/"):
        return json_answer({"error": error.message}, error.status)
    if backend.dialect == "messages":
        body = _anthropic_error(error)
        response = json_answer(body, error.status)
        response.headers["request-id"] = body["request_id"]
        return response
    envelope = {
        "message": error.message,
        "type": "invalid_request_error",
        "param": error.param,
        "code": error.code,
    }
    return json_answer({"error": envelope}, error.status)


def _anthropic_error(error: BadRequest) -> dict[str, Any]:
    """The error as Anthropic puts it."""
    kind = _TYPES.get(error.status, "invalid_request_error")
    said = {"type": kind, "message": error.message}
    return {"type": "error", "error": said, "request_id": new_id("req_")[:28]}
