"""Plugins for the tests, named in settings as ``tests.support.plugins:FACTORY``."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from router.plugin import (
    Exchange,
    Frame,
    Guard,
    Interceptor,
    Observer,
    Plugin,
    PluginContext,
    Proceed,
    Sink,
)

__all__ = [
    "NOT_CALLABLE",
    "Held",
    "Lingering",
    "Parrot",
    "Recorder",
    "Stillborn",
    "broken",
    "nothing",
]

NOT_CALLABLE = 5


class Recorder(Guard, Observer):
    """Writes down everything that it hears, per application that made one."""

    made: ClassVar[list[Recorder]] = []

    def __init__(self, context: PluginContext | None = None) -> None:
        self.heard: list[str] = []
        self.ended_as: list[Exchange] = []
        self.made.append(self)

    async def start(self) -> None:
        self.heard.append("start")

    async def stop(self) -> None:
        self.heard.append("stop")

    async def admit(self, exchange: Exchange) -> None:
        self.heard.append("admit")

    def started(self, exchange: Exchange) -> None:
        self.heard.append("started")

    def first_output(self, exchange: Exchange) -> None:
        self.heard.append("first_output")

    def ended(self, exchange: Exchange) -> None:
        self.heard.append("ended")
        self.ended_as.append(exchange)


class Parrot(Interceptor):
    """Answers for the model ``parrot`` itself, and leaves everything else to the rest."""

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        if exchange.model != "parrot":
            await proceed(exchange, sink)
        elif exchange.stream:
            sink.open({"X-Parrot": "stream"})
            sink.feed([Frame.of({"type": "parrot.said", "text": exchange.body["input"]})])
            sink.end()
        else:
            sink.finish(200, b'{"parrot": true}', {"X-Parrot": "whole"})


class Stillborn(Plugin):
    """Does not start."""

    async def start(self) -> None:
        raise OSError("no such\nport")


class Lingering(Recorder, Interceptor):
    """Takes a moment to clean up, whatever becomes of the exchange."""

    async def intercept(self, exchange: Exchange, sink: Sink, proceed: Proceed) -> None:
        try:
            await proceed(exchange, sink)
        finally:
            await asyncio.sleep(0.05)
            self.heard.append("clean")


class Held(Plugin):
    """Starts when it is let go."""

    made: ClassVar[list[Held]] = []

    def __init__(self, context: PluginContext | None = None) -> None:
        self.let_go = asyncio.Event()
        self.made.append(self)

    async def start(self) -> None:
        await self.let_go.wait()


def broken(context: PluginContext) -> None:
    """A factory with a bug of its own."""
    raise ZeroDivisionError("this plugin is broken")


def nothing(context: PluginContext) -> None:
    """A factory that makes nothing."""
