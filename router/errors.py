"""Every error the router raises; each knows its HTTP status, type, code and param.

    RouterError
    ├── InvalidRequest          400  the caller's fault; the field is named in ``param``
    ├── AuthenticationFailed    401  no key, or a wrong one
    ├── Forbidden               403  closed to everybody
    ├── NotFound                404  no such object or route
    │   └── ModelNotFound       404  no endpoint serves the model
    ├── MethodNotAllowed        405
    ├── Conflict                409  somebody else's turn, or a name that is taken
    ├── PayloadTooLarge         413
    ├── RateLimitExceeded       429  more than the key's limits allow; with Retry-After
    ├── QuotaExceeded           429  a budget of the key, or of one of its tags, is spent
    ├── LimitsUnavailable       503  what counts limits does not answer
    ├── Overloaded              503  every candidate is full, and the queue too or its time over
    ├── ShuttingDown            503
    ├── ToolServerFailed        424  a tool's server does not tell its tools (or 401)
    ├── NotCached               504  only an answer from the cache was wanted
    ├── StateUnavailable        503  the database of the stored state does not answer
    ├── NotSupported            501  nobody here can do it
    ├── InternalError           500  a bug of ours; its details go to the log only
    └── UpstreamError            raised at the boundary to an endpoint, and nowhere else
        ├── NoFileDescriptors   503  the router has none left to connect with
        ├── UpstreamRejected    4xx  the endpoint refuses the request itself, in its own words
        ├── UpstreamModelMissing 404  the endpoint does not know the model
        │   └── UpstreamRouteMissing 404  nor the operation, as it seems
        ├── UpstreamRateLimited 429  with its Retry-After
        ├── UpstreamFailure     502  5xx, 401/403, garbage, a broken connection
        ├── UpstreamUnavailable 503  no connection could be made
        │   └── UpstreamLoading 503  the endpoint is still bringing its model into memory
        ├── ModelLoadFailed     503  the endpoint could not bring the model into memory
        └── UpstreamTimeout     504  a deadline of the endpoint's ``timeouts`` passed
            └── UpstreamTooLong 504  that of the whole answer (``timeouts.total``)

The envelope is ``{"error": {"message", "type", "param", "code"}}``, with all four keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple, Self

__all__ = [
    "AuthenticationFailed",
    "Conflict",
    "EndpointWords",
    "Forbidden",
    "InternalError",
    "InvalidRequest",
    "LimitsUnavailable",
    "MethodNotAllowed",
    "ModelLoadFailed",
    "ModelNotFound",
    "NoFileDescriptors",
    "NotCached",
    "NotFound",
    "NotSupported",
    "Overloaded",
    "PayloadTooLarge",
    "QuotaExceeded",
    "RateLimitExceeded",
    "RouterError",
    "ShuttingDown",
    "StateUnavailable",
    "ToolServerFailed",
    "UpstreamError",
    "UpstreamFailure",
    "UpstreamLoading",
    "UpstreamModelMissing",
    "UpstreamRateLimited",
    "UpstreamRejected",
    "UpstreamRouteMissing",
    "UpstreamTimeout",
    "UpstreamTooLong",
    "UpstreamUnavailable",
    "no_access",
]

_SHOWN: Final = 200
"""Characters of a client's value that an error repeats."""


class RouterError(Exception):
    """An error with a place in the API's envelope.

    ``message`` is for the client and says what to do about it; ``param`` names the field at
    fault; ``headers`` go out with the HTTP answer (``Retry-After``). ``limit`` is a short name of
    the limit or budget that refused, for the log.
    """

    status: int = 500
    type: str = "server_error"
    default_code: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code if code is not None else self.default_code
        self.param = param
        self.headers: dict[str, str] = dict(headers or {})
        self.limit: str | None = None

    @property
    def logged(self) -> str:
        """What may be logged of it: never what somebody else has put into words."""
        return self.message

    def envelope(self) -> dict[str, dict[str, str | None]]:
        """The JSON body of the error."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }

    def response_error(self) -> dict[str, str]:
        """The ``error`` field of a failed response object: a code of OpenAI's closed list."""
        code = "rate_limit_exceeded" if self.status == 429 else "server_error"
        return {"code": code, "message": self.message}


class _CallersFault(RouterError):
    type = "invalid_request_error"


class InvalidRequest(_CallersFault):
    """400: the request itself is at fault."""

    status = 400


class AuthenticationFailed(_CallersFault):
    """401: no key, or a wrong one."""

    status = 401
    default_code = "invalid_api_key"


class Forbidden(_CallersFault):
    """403: closed to everybody, as it is configured."""

    status = 403
    default_code = "forbidden"


class NotFound(_CallersFault):
    """404: no such object or route."""

    status = 404

    @classmethod
    def of(cls, kind: str, ident: str, *, param: str | None = None, where: str = "") -> NotFound:
        """The error for an object of this kind; a client's id is repeated in part."""
        return cls(f"{kind} with id '{ident[:_SHOWN]}' not found{where}.", param=param)


class ModelNotFound(NotFound):
    """404: no endpoint serves the model, or none that the key may use."""

    default_code = "model_not_found"


def no_access(model: str) -> ModelNotFound:
    """For a key that may not use a model: like one that is not there."""
    return ModelNotFound(
        f"The model '{model[:_SHOWN]}' does not exist or you do not have access to it.",
        param="model",
    )


class MethodNotAllowed(_CallersFault):
    """405: the path exists, the method does not."""

    status = 405


class Conflict(_CallersFault):
    """409: what others do stands against it: their turn in a conversation, a name they took."""

    status = 409
    default_code = "conversation_locked"


class PayloadTooLarge(_CallersFault):
    """413: the body exceeds ``server.max_body_mb`` or ``server.max_body_values``."""

    status = 413
    default_code = "request_too_large"


class UnsupportedMediaType(_CallersFault):
    """415: the body is not declared as what it has to be."""

    status = 415
    default_code = "unsupported_media_type"


class NotSupported(_CallersFault):
    """501: no endpoint that serves the model can do it."""

    status = 501
    default_code = "not_supported"


class RateLimitExceeded(RouterError):
    """429: more than the key's limits allow; ``Retry-After`` says when there is room again."""

    status = 429
    type = "rate_limit_error"
    default_code = "rate_limit_exceeded"


class QuotaExceeded(RouterError):
    """429: a budget of the key, or of one of its tags, is spent. The message says until when."""

    status = 429
    type = "insufficient_quota"
    default_code = "insufficient_quota"

    def response_error(self) -> dict[str, str]:
        """Not of OpenAI's list: to try again soon is of no use."""
        return {"code": "insufficient_quota", "message": self.message}


class LimitsUnavailable(RouterError):
    """503: what counts limits does not answer, and the configuration has requests refused then."""

    status = 503
    default_code = "limits_unavailable"


class Overloaded(RouterError):
    """503: every candidate is full, and the queue or its deadline is exhausted."""

    status = 503
    default_code = "overloaded"


class ShuttingDown(RouterError):
    """503: the router drains before it stops."""

    status = 503
    default_code = "shutting_down"


class NotCached(_CallersFault):
    """504: the request may only be answered from the cache, which has no answer."""

    status = 504
    default_code = "not_cached"


class StateUnavailable(RouterError):
    """503: the database that keeps the stored state does not answer."""

    status = 503
    default_code = "state_unavailable"


class ToolServerFailed(_CallersFault):
    """424: the server of a tool could not be asked what tools it has. ``refused``: 401, it wants
    other credentials than those of the request.
    """

    status = 424
    default_code = "external_connector_error"

    def __init__(self, message: str, *, param: str, refused: bool = False) -> None:
        super().__init__(message, param=param)
        if refused:
            self.status = 401


class InternalError(RouterError):
    """500: a bug of the router's own; the details are in its log under the request id."""

    default_code = "internal_error"


class EndpointWords(NamedTuple):
    """An endpoint's own error: its status, its decoded body, and those of its headers that are for
    the client.
    """

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]


class UpstreamError(RouterError):
    """Something went wrong at an endpoint.

    ``said`` is the error as the endpoint put it, where a client that speaks its API is told so.

    ``elsewhere`` says that another endpoint may well succeed, ``again`` that even the same one
    may (nothing but the connection failed), so that a single candidate is tried once more.
    """

    elsewhere: bool = True
    said: EndpointWords | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        again: bool = False,
    ) -> None:
        super().__init__(message, code=code, param=param, headers=headers)
        self.again = again
        self._quotes = False

    @classmethod
    def quoting(
        cls,
        words: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Self:
        """An error whose message is the endpoint's: there may be a prompt in it, or an answer."""
        error = cls(words, code=code, param=param, headers=headers)
        error._quotes = True
        return error

    @property
    def logged(self) -> str:
        """See ``RouterError.logged``."""
        if not self._quotes:
            return self.message
        return f"{type(self).__name__}, in the endpoint's words, which are not logged"


class NoFileDescriptors(UpstreamError):
    """503: the router has no file descriptor to connect with, for this endpoint or another."""

    status = 503
    default_code = "file_descriptors_exhausted"
    elsewhere = False

    def __init__(self) -> None:
        message = "The router has too many open files to connect to an endpoint. Try again shortly."
        super().__init__(message, headers={"Retry-After": "1"})


class UpstreamRejected(UpstreamError):
    """The endpoint refuses the request itself; no other endpoint is asked. ``status`` (from 400 to
    499) and ``type`` may be set to its own.
    """

    status = 400
    type = "invalid_request_error"
    elsewhere = False

    def response_error(self) -> dict[str, str]:
        """See ``RouterError.response_error``; the endpoint's code where it gave one."""
        return {"code": self.code or "invalid_prompt", "message": self.message}


class UpstreamModelMissing(UpstreamError):
    """404: the endpoint does not know the model, although it was thought to serve it."""

    status = 404
    type = "invalid_request_error"
    default_code = "model_not_found"


class UpstreamRouteMissing(UpstreamModelMissing):
    """404: the endpoint has no such route, or says nothing of a model."""


class UpstreamRateLimited(UpstreamError):
    """429: the endpoint's own rate limit, with its ``Retry-After``."""

    status = 429
    type = "rate_limit_error"
    default_code = "rate_limit_exceeded"


class UpstreamFailure(UpstreamError):
    """502: 5xx, refused credentials, garbage, or a connection that broke."""

    status = 502
    default_code = "upstream_error"


class UpstreamUnavailable(UpstreamError):
    """503: the endpoint could not be reached."""

    status = 503
    default_code = "upstream_unavailable"


class UpstreamLoading(UpstreamUnavailable):
    """503: the endpoint is still bringing its model into memory, of its own accord."""


class ModelLoadFailed(UpstreamError):
    """503: the endpoint could not bring the model into memory; it may well serve its others."""

    status = 503
    default_code = "model_load_failed"


class UpstreamTimeout(UpstreamError):
    """504: a deadline of the endpoint's ``timeouts`` passed."""

    status = 504
    default_code = "upstream_timeout"


class UpstreamTooLong(UpstreamTimeout):
    """504: the answer was not whole in time; ``begun``: some of it had arrived."""

    def __init__(self, message: str, *, begun: bool) -> None:
        super().__init__(message)
        self.begun = begun
