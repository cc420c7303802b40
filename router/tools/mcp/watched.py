"""The SDK's streams, watched: whether a request was sent, and whether the server is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import Context
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from mcp.shared.message import SessionMessage

from router.tools.mcp.request import CURRENT

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams, WriteStream

__all__ = ["silence_sdk", "watched"]

_LOGGERS: Final = (
    "client",
    "httpcore2.connection",
    "httpcore2.http11",
    "httpx2",
    "mcp.client.client",
    "mcp.client.sse",
    "mcp.client.streamable_http",
    "mcp.shared._otel",
    "mcp.shared.dispatcher",
    "mcp.shared.jsonrpc_dispatcher",
)


def watched(streams: TransportStreams, gone: Callable[[], None]) -> TransportStreams:
    """The same streams; ``gone`` is called when nothing more can come."""
    incoming, outgoing = streams
    return _Incoming(incoming, gone), _Outgoing(outgoing)


def silence_sdk() -> None:
    """Nothing that the SDK logs for a session of the router is written: it holds URLs, with the
    secrets in them, and what was asked and answered. What an application logs of its own use of
    the SDK is left alone.
    """
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if _not_ours not in logger.filters:
            logger.addFilter(_not_ours)


def _not_ours(record: logging.LogRecord) -> bool:
    return CURRENT.get(None) is None


class _Incoming:
    def __init__(
        self, inner: ReadStream[SessionMessage | Exception], gone: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._gone = gone

    @property
    def last_context(self) -> Context | None:
        """That of who sent the last item, where the stream knows it."""
        context: Context | None = getattr(self._inner, "last_context", None)
        return context

    async def receive(self) -> SessionMessage | Exception:
        return await self._inner.receive()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await anext(self._inner)
        except StopAsyncIteration:
            self._gone()
            raise

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, traceback)


class _Outgoing:
    def __init__(self, inner: WriteStream[SessionMessage]) -> None:
        self._inner = inner

    async def send(self, item: SessionMessage, /) -> None:
        CURRENT.get().sent = True
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, traceback)
