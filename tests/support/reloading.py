"""Another configuration for a router that runs in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from router.app import RELOADER
from router.core.plugin_sets import PluginSets
from router.reload import Reloaded
from router.settings.document import SettingsError
from tests.support.router import Router, endpoint, settings_for
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream, parse_events
from tests.support.upstream import Script, Upstream, Wire, streamed

__all__ = [
    "Begun",
    "begun",
    "keys",
    "outcome",
    "patient",
    "pausing",
    "plugin_sets",
    "refused",
    "reload",
    "with_key",
]

CHAT = SPEECH["chat"]


def keys(*given: str) -> dict[str, Any]:
    """The section ``auth`` with these keys."""
    return {"keys": [{"name": f"key-{key[3:6]}", "key": key} for key in given]}


def with_key(key: str) -> dict[str, str]:
    """The header of a client with this key."""
    return {"Authorization": f"Bearer {key}"}


async def reload(router: Router, *endpoints: dict[str, Any], **sections: Any) -> list[str]:
    """Take over settings as ``routing`` makes them; what changed."""
    return list(await router.app[RELOADER].reload(settings_for(*endpoints, **sections)))


async def refused(router: Router, *endpoints: dict[str, Any], **sections: Any) -> str:
    """Try to; the reasons why not, a line each."""
    before = router.app[RELOADER].settings
    with pytest.raises(SettingsError) as caught:
        await reload(router, *endpoints, **sections)
    last = outcome(router)
    assert last is not None
    assert (last.ok, "\n".join(last.said)) == (False, str(caught.value))
    assert router.app[RELOADER].settings is before
    return str(caught.value)


def outcome(router: Router) -> Reloaded | None:
    """How the last reload ended."""
    return router.app[RELOADER].last


def plugin_sets(router: Router) -> PluginSets:
    """The plugins that are in use, and those that still are."""
    return router.app[RELOADER]._plugin_sets


def pausing(go_on: asyncio.Event) -> Script:
    """A stream that pauses after its first word."""

    async def goes_on(wire: Wire) -> None:
        await go_on.wait()
        for piece in (*CHAT.words[1:], CHAT.closing):
            wire.piece(piece)
        wire.end()

    return streamed(CHAT.opening, CHAT.words[0], kind=CHAT.kind, then=goes_on)


@dataclass
class Begun:
    """A stream of which the first word has arrived."""

    response: aiohttp.ClientResponse
    seen: bytes

    async def text(self) -> str:
        """What it says in the end."""
        self.seen += await self.response.read()
        text: str = check_responses_stream(parse_events(self.seen))["output_text"]
        return text


@contextlib.asynccontextmanager
async def begun(router: Router, **options: Any) -> AsyncIterator[Begun]:
    """A stream of which the first word has arrived."""
    body = {"model": "m", "input": "hi", "stream": True}
    async with router.http.post(f"{router.url}/v1/responses", json=body, **options) as response:
        seen = b""
        while b"Hello" not in seen:
            seen += await response.content.readany()
        yield Begun(response, seen)


def patient(upstream: Upstream, name: str = "one", **fields: Any) -> dict[str, Any]:
    """An endpoint that may take its time."""
    limits = {"first_byte": 10.0, "idle": 10.0, "total": 20.0}
    return endpoint(upstream, "chat", name, timeouts=limits, **fields)
