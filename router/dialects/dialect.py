"""What a folder of ``router.dialects`` declares, so that requests find it.

A dialect has five parts: ``schema`` (its forms and names), ``decode_request`` and ``encode_stream``
for clients that speak it, ``encode_request`` and ``decode_stream`` for endpoints that do. Between
them there is one form only: a Responses request, and the events of a response. In its module
``dialect`` the folder says which of them it has:

- ``ENDPOINT``, an ``EndpointDialect``: endpoints may be configured with its name as ``dialect``.
- ``API``, a ``ClientApi``: its routes are served, in front of endpoints of every dialect.

Nothing else has to be changed for a new one. ``endpoint_dialects`` and ``client_apis`` find them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Protocol

from router import dialects
from router.dialects.api_format import ApiFormat
from router.dialects.operation import Operation
from router.errors import UpstreamFailure
from router.response.builder import ResponseBuilder
from router.response.decoder import StreamDecoder
from router.response.frame import Frame
from router.response.machine import MachineOptions
from router.settings.schema import EndpointSettings

__all__ = [
    "ApiRequest",
    "ApiRoute",
    "ClientApi",
    "EncodeRequest",
    "EncodedRequest",
    "EndpointDialect",
    "RequestTimes",
    "ResponseEncoder",
    "client_apis",
    "endpoint_dialects",
]


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """What an endpoint is sent for a Responses request.

    ``path`` is relative to the endpoint's URL. ``dropped`` are the fields, and types of tools, that
    it leaves out. ``forced_call``: the text of the answer is a tool call as JSON,
    ``{"name", "arguments"}``. ``foreign_reasoning`` is how many items of encrypted reasoning it
    leaves out because another account issued them; None: all, since the dialect has no such thing.
    ``documents`` as for ``MachineOptions``.
    """

    path: str
    body: dict[str, Any]
    dropped: tuple[str, ...] = ()
    forced_call: bool = False
    foreign_reasoning: int | None = None
    documents: tuple[str, ...] = ()


class EncodeRequest(Protocol):
    """Encodes a Responses request for an endpoint."""

    def __call__(
        self,
        body: Mapping[str, Any],
        *,
        model: str,
        stream: bool,
        usage: bool,
        settings: EndpointSettings,
        images: Mapping[str, str],
    ) -> EncodedRequest:
        """``body`` is validated and stays as it is; the result may share values with it.

        ``model`` is the endpoint's name for the model. ``usage``: a stream may be asked for its
        token counts. ``settings`` are the endpoint's, ``images`` those that were fetched for it:
        base64 by URL. Raises InvalidRequest for what cannot be carried.
        """
        ...


def _openai_names(listing: Any) -> list[str]:
    """The models of a list in OpenAI's form; raises UpstreamFailure for anything else."""
    data = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(data, list):
        raise UpstreamFailure("The list of models has no 'data'.")
    names = (model.get("id") for model in data if isinstance(model, dict))
    return [name for name in names if isinstance(name, str)]


@dataclass(frozen=True, slots=True)
class EndpointDialect:
    """How endpoints are spoken to.

    ``decoder`` reads an answer: a new one for each. ``models_path`` is where an endpoint lists its
    models, relative to its URL, and ``model_names`` reads that list; it raises UpstreamFailure.
    """

    encode: EncodeRequest
    decoder: Callable[[ResponseBuilder, MachineOptions], StreamDecoder]
    models_path: str = "/models"
    model_names: Callable[[Any], Sequence[str]] = _openai_names


class ResponseEncoder(Protocol):
    """Makes one client's answer of a response. Pure: one for each exchange."""

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """The client's frames for these events of the response's stream, its terminal event
        among them at the end: ``response.failed`` too.
        """
        ...

    def whole(self, body: bytes) -> bytes:
        """The client's body for a finished Response object; raises RouterError for a failed one."""
        ...


class RequestTimes(Protocol):
    """What becomes of one request; durations are in nanoseconds."""

    @property
    def id(self) -> str:
        """The id that the request is known by in the log."""
        ...

    def stamp(self) -> str:
        """The time of day, RFC 3339."""
        ...

    def since(self) -> int:
        """What has passed since the request came in."""
        ...

    def waited(self) -> int:
        """What of it the request stood in a queue, or waited for its model to be loaded."""
        ...

    def replaced(self) -> str | None:
        """The model that stood in for the one that was asked for; None where none did."""
        ...


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A client's request, decoded.

    ``body`` is a validated Responses request, or what of one makes up a prompt. ``encoder`` makes
    what encodes the answer. ``dropped`` are the paths of fields that a Responses request cannot
    carry, in the API's words. ``dropped_reasoning`` is how much encrypted reasoning was left out,
    because somebody else had signed it.
    """

    body: dict[str, Any]
    encoder: Callable[[RequestTimes], ResponseEncoder]
    dropped: tuple[str, ...] = ()
    dropped_reasoning: int = 0


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """A route. ``path`` follows a prefix; ``decode`` takes the request's JSON object, and raises
    InvalidRequest. ``outline`` does the same for what only endpoints of ``ClientApi.dialect``
    understand: what is said of it is enough to choose one of them.
    """

    path: str
    operation: Operation
    decode: Callable[[dict[str, Any]], ApiRequest]
    method: str = "POST"
    outline: Callable[[dict[str, Any]], ApiRequest] | None = None


@dataclass(frozen=True, slots=True)
class ClientApi:
    """An API that clients speak.

    ``prefixes`` are where its routes are served. ``form`` gives the form of the answers to the
    request with an id, None before there is one, and ``headers`` what every answer to it has.
    ``dialect`` is that of the endpoints which speak this API themselves: requests pass to them as
    they come, with the query and the headers that ``passes`` picks.
    """

    routes: Sequence[ApiRoute]
    form: Callable[[str | None], ApiFormat]
    prefixes: Sequence[str] = ("/v1", "/api/v1")
    headers: Callable[[str], Mapping[str, str]] = lambda request_id: {}
    dialect: str | None = None
    passes: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda headers: {}


def endpoint_dialects() -> dict[str, EndpointDialect]:
    """The dialects that endpoints may speak, by name."""
    return {name: module.ENDPOINT for name, module in _declared() if hasattr(module, "ENDPOINT")}


def client_apis() -> list[ClientApi]:
    """The APIs that are decoded to Responses requests."""
    return [module.API for _, module in _declared() if hasattr(module, "API")]


@cache
def _declared() -> list[tuple[str, ModuleType]]:
    """The folders that declare a dialect or an API; there are no others later."""
    found = []
    for _, name, is_package in iter_modules(dialects.__path__):
        if not is_package:
            continue
        package = import_module(f"{dialects.__name__}.{name}")
        if any(module.name == "dialect" for module in iter_modules(package.__path__)):
            found.append((name, import_module(f"{package.__name__}.dialect")))
    return found
