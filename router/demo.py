"""The demo: the router in front of three simulated backends, all in this one process.

Nothing leaves the machine, nothing is configured and nothing is paid for, but the way is the
real one: each backend listens on a loopback port of its own and speaks its own dialect.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from pydantic import SecretStr

from router.serve import new_event_loop, serve
from router.settings.cache import CacheSettings
from router.settings.schema import EndpointSettings, ServerSettings, Settings, StateSettings
from router.simulate import DEFAULT_MODELS, Dialect, create_backend, listening
from router.telemetry.log import configure

__all__ = ["run", "welcome"]

_NAMES: Final[dict[Dialect, str]] = {
    "responses": "demo-native",
    "chat": "demo-chat",
    "ollama": "demo-ollama",
}
_SPEAKS: Final[dict[Dialect, str]] = {
    "responses": "Responses",
    "chat": "Chat Completions",
    "ollama": "Ollama",
}
_DRAIN_TIMEOUT: Final = 3.0
_WELCOME: Final = """
Pointsman listens on {url}
in front of three simulated backends:

{fleet}

# Ask something
curl {url}/v1/responses -H 'Content-Type: application/json' \\
  -d '{{"model": "sim-chat", "input": "What is a pointsman?"}}'

# Watch it stream, event by event
curl -N {url}/v1/responses -H 'Content-Type: application/json' \\
  -d '{{"model": "sim-llama", "input": "Count to 20", "stream": true}}'

# From Python (pip install openai)
python3 - <<'END'
from openai import OpenAI
client = OpenAI(base_url="{url}/v1", api_key="unused")
print(client.responses.create(model="sim-native", input="Hello!").output_text)
END

# Look around
curl {url}/v1/models
curl -s {url}/metrics | grep ^pointsman_requests_total

Ctrl-C stops it.
"""


def run(port: int = 8080) -> int:
    """Run the demo until SIGINT or SIGTERM; the exit code.

    Port 0 takes a free one. Raises OSError where the port cannot be listened on.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_demo(port))


async def _demo(port: int) -> int:
    async with AsyncExitStack() as stack:
        endpoints = []
        for dialect, name in _NAMES.items():
            url = await stack.enter_async_context(listening(create_backend(dialect)))
            endpoints.append(EndpointSettings(name=name, url=url, dialect=dialect))
        settings = Settings(
            server=ServerSettings(port=port, shutdown_delay=0, drain_timeout=_DRAIN_TIMEOUT),
            endpoints=tuple(endpoints),
            state=StateSettings(url=SecretStr("sqlite:///:memory:")),
            cache=CacheSettings(mode="on-request"),
        )
        configure(settings.logging.level, settings.logging.format)
        return await serve(settings, on_ready=lambda url: print(welcome(url), flush=True))


def welcome(url: str) -> str:
    """What a newcomer can try, ready to be pasted; ``url`` is where the router listens."""
    rows = [("model", "endpoint", "speaks")]
    for dialect, name in _NAMES.items():
        rows += [(model, name, _SPEAKS[dialect]) for model in DEFAULT_MODELS[dialect]]
    fleet = "\n".join(f"  {model:<18}{name:<14}{speaks}" for model, name, speaks in rows)
    return _WELCOME.format(url=url, fleet=fleet)
