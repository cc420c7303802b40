"""Bringing models into memory, which takes longer than any request should have to wait alone.

A load belongs to the router and not to the request that needs it: Ollama gives up a load when the
connection that caused it closes, so a client that leaves would take it away from everybody who
waits for the same model. There is one load of a model at an endpoint at a time, whoever asks; its
deadline is ``timeouts.load``. When it fails the model is left alone there for a while, and the
endpoint's breakers, which are about answers, do not hear of it.

Loads of different models at one endpoint are not held back: whether they fit into its memory side
by side only it can tell, and it queues them where they do not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Final

from router.core.upstream import Adapter, LoadRequest
from router.endpoints.deployment import Deployment
from router.endpoints.endpoint import Endpoint
from router.endpoints.loading import CannotBeAsked, LoadFailed, LoadRefused, load, wait_until_ready
from router.errors import (
    ModelLoadFailed,
    NoFileDescriptors,
    NotSupported,
    RouterError,
    UpstreamError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from router.settings.values import KeepAlive
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["Loads"]

_log = get_logger("router.loads")

_FIRST_PAUSE: Final = 30.0
_LONGEST_PAUSE: Final = 300.0
"""Seconds for which a model is left alone that could not be loaded; twice as long each time."""

_NO_LOAD_SECONDS: Final = 0.05
"""What is there so soon was in memory already, which says nothing about loading it."""

_ASKED_AGAIN: Final = 600.0
"""Seconds after which an endpoint is asked again that did not know such requests: it may have been
a proxy in front of it that did not.
"""

_SHOWN_OF_NAME: Final = 200


class _ModelLoad:
    """A load under way. Once it is ``over``, ``failure`` makes the error for those who waited.

    ``refusal`` does where the endpoint would not even try; requests may then go up as they are.
    Without a ``request`` the endpoint loads of its own accord.
    """

    __slots__ = ("deployment", "failure", "over", "refusal", "request", "task")

    def __init__(self, deployment: Deployment, request: LoadRequest | None) -> None:
        self.deployment = deployment
        self.request = request
        self.over = asyncio.Event()
        # Whatever ends the task, nobody waits for ever.
        self.failure: Callable[[], RouterError] | None = partial(
            _failed, deployment, "it was given up"
        )
        self.refusal: Callable[[], RouterError] | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def unloads(self) -> bool:
        return self.request is not None and self.request.unloads

    def log_fields(self) -> dict[str, str]:
        """What every line about it says."""
        return {"endpoint": self.deployment.endpoint.name, "model": self.deployment.model}


class Loads:
    """Loads the models of a fleet, one load per model and endpoint at a time."""

    def __init__(self) -> None:
        self._tasks = Tasks()
        self._running: dict[Deployment, _ModelLoad] = {}
        self._pauses: dict[Deployment, float] = {}
        self._cannot: dict[Endpoint, tuple[Adapter, float]] = {}

    async def ensure(self, deployment: Deployment) -> None:
        """Have the model in memory, as far as the endpoint can be asked to load it.

        Starts the load or joins the one under way, which goes on when the caller is cancelled.
        Raises ModelLoadFailed, or UpstreamUnavailable when no connection could be made.
        """
        while not deployment.loaded:
            running = self._running.get(deployment)
            if running is None:
                request = self._request(deployment, None)
                if request is None:
                    return  # it loads by itself when a request comes
                running = self._begin(deployment, request)
            await running.over.wait()
            if running.failure is not None:
                raise running.failure()
            if not running.unloads:
                return

    async def warm(self, deployment: Deployment, keep_alive: KeepAlive | None) -> None:
        """Load the model, if need be, and have it kept for so long; zero takes it out of memory.

        Raises like ``ensure``, NotSupported where the endpoint cannot be asked to, and
        UpstreamRejected where it will not.
        """
        while (running := self._running.get(deployment)) is not None:
            await running.over.wait()
        request = self._request(deployment, keep_alive)
        if request is None:
            raise _cannot_be_asked(deployment.endpoint)
        running = self._begin(deployment, request)
        await running.over.wait()
        error = running.failure or running.refusal
        if error is not None:
            raise error()

    def found_loading(self, deployment: Deployment) -> None:
        """The endpoint says that it is loading the model, of its own accord: who asks for it waits
        for that as for a load, within the same deadline.
        """
        if deployment not in self._running:
            _log.info("model is loading", endpoint=deployment.endpoint.name, model=deployment.model)
            self._begin(deployment, None)
        deployment.in_memory(time.monotonic(), False)

    def drop(self, endpoint: Endpoint) -> None:
        """The endpoint is no longer in use: give up its loads. Those who wait are told."""
        for deployment, running in self._running.items():
            if deployment.endpoint is endpoint and running.task is not None:
                running.task.cancel()
        self._cannot.pop(endpoint, None)
        for gone in [deployment for deployment in self._pauses if deployment.endpoint is endpoint]:
            del self._pauses[gone]

    async def close(self) -> None:
        """Give up every load."""
        await self._tasks.close()

    def _request(self, deployment: Deployment, keep_alive: KeepAlive | None) -> LoadRequest | None:
        endpoint = deployment.endpoint
        adapter, until = self._cannot.get(endpoint, (None, 0.0))
        if adapter is endpoint.adapter and time.monotonic() < until:
            return None
        return endpoint.adapter.load(deployment.model, keep_alive)

    def _begin(self, deployment: Deployment, request: LoadRequest | None) -> _ModelLoad:
        begun = self._running[deployment] = _ModelLoad(deployment, request)
        deployment.load_began = time.monotonic()
        name = f"load {deployment.model} at {deployment.endpoint.name}"
        begun.task = self._tasks.spawn(self._run(begun), name)
        begun.task.add_done_callback(lambda _: self._over(begun))
        return begun

    def _over(self, ended: _ModelLoad) -> None:
        deployment = ended.deployment
        del self._running[deployment]
        deployment.load_began = None
        ended.over.set()
        deployment.endpoint.probe_now.set()

    async def _run(self, running: _ModelLoad) -> None:
        """Load, and note how it went for the deployment and for those who wait."""
        deployment = running.deployment
        endpoint = deployment.endpoint
        adapter = endpoint.adapter
        limit = endpoint.settings.timeouts.load
        began = time.monotonic()
        try:
            async with asyncio.timeout(limit):
                told = None
                if running.request is None:
                    await wait_until_ready(deployment)
                else:
                    told = await load(deployment, running.request, limit)
        except CannotBeAsked as exc:
            self._cannot[endpoint] = (adapter, time.monotonic() + _ASKED_AGAIN)
            running.failure, running.refusal = None, partial(_cannot_be_asked, endpoint)
            _log.info("endpoint cannot be asked to load", endpoint=endpoint.name, error=str(exc))
        except LoadRefused as exc:
            running.failure, running.refusal = None, partial(UpstreamRejected, str(exc))
            _log.info("load refused", **running.log_fields(), error=str(exc))
        except (TimeoutError, UpstreamTimeout):
            reason = f"it was not done within {limit:g} s (timeouts.load)"
            self._fail(running, reason, reason)
        except NoFileDescriptors:
            running.failure = NoFileDescriptors
        except UpstreamUnavailable as exc:
            # The endpoint's own breaker is to know, and no matter of this model.
            running.failure = partial(UpstreamUnavailable, exc.message, again=exc.again)
        except LoadFailed as exc:
            self._fail(running, f"{exc} after {time.monotonic() - began:.1f} s", exc.words)
        except UpstreamError as exc:
            self._fail(running, exc.message.rstrip("."), exc.message)
        else:
            running.failure = None
            self._done(running, told if told is not None else time.monotonic() - began)

    def _done(self, done: _ModelLoad, seconds: float) -> None:
        deployment = done.deployment
        now = time.monotonic()
        deployment.load_began = None
        if done.unloads:
            deployment.in_memory(now, False)
            _log.info("model unloaded", **done.log_fields())
            return
        self._pauses.pop(deployment, None)
        if not deployment.loaded and seconds >= _NO_LOAD_SECONDS:
            deployment.load_time.observe(seconds)
        deployment.in_memory(now, True)
        _log.info("model loaded", **done.log_fields(), seconds=round(seconds, 3))

    def _fail(self, failed: _ModelLoad, reason: str, words: str) -> None:
        """Leave the model alone for a while, so that those who follow do not repeat it."""
        deployment = failed.deployment
        pause = 0.0
        if not (failed.unloads or deployment.loaded):
            pause = self._pause(deployment)
            now = time.monotonic()
            deployment.load_began = None
            deployment.cool(now + pause, now)
        failed.failure = partial(_failed, deployment, reason, pause)
        words = deployment.endpoint.redacted(words)
        _log.warning("model not loaded", **failed.log_fields(), error=words, pause=pause)

    def _pause(self, deployment: Deployment) -> float:
        """How long it is left alone: twice as long as the last time, if that was not long ago."""
        last = self._pauses.get(deployment)
        if last is None or time.monotonic() > deployment.cool_until + _LONGEST_PAUSE:
            last = _FIRST_PAUSE / 2
        for gone in [t for t in self._pauses if t.endpoint.deployments.get(t.model) is not t]:
            del self._pauses[gone]
        self._pauses[deployment] = pause = min(2 * last, _LONGEST_PAUSE)
        return pause


def _failed(deployment: Deployment, reason: str, pause: float = 0.0) -> ModelLoadFailed:
    return ModelLoadFailed(
        f"Endpoint '{deployment.endpoint.name}' could not load the model "
        f"'{deployment.model[:_SHOWN_OF_NAME]}': {reason}.",
        headers={"Retry-After": str(ceil(pause))} if pause else None,
    )


def _cannot_be_asked(endpoint: Endpoint) -> NotSupported:
    return NotSupported(f"Endpoint '{endpoint.name}' cannot be asked to load a model.")
