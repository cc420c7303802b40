"""Jupyter's protocol, as far as it is needed: kernels over HTTP, code over a WebSocket.

See https://jupyter-client.readthedocs.io/en/stable/messaging.html and the REST API of Jupyter
Server, which Enterprise Gateway has too.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

import aiohttp
import orjson

from router.containers.runner import ContainerGone, RunnerFailed
from router.settings.code_interpreter import JupyterGatewaySettings

__all__ = ["Gateway", "KernelRun", "Transcript"]

_MOST_MESSAGE: Final = 32 * 1024 * 1024
_MOST_ANSWER: Final = 1024 * 1024
_MOST_IMAGES: Final = 8
_MOST_IMAGE: Final = 3 * 1024 * 1024
_CLOSE_SECONDS: Final = 2.0
_INTERRUPT_SECONDS: Final = 3.0
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Transcript:
    """The beginning and the end of a text: ``most`` characters of it."""

    def __init__(self, most: int) -> None:
        self._half = max(1, most // 2)
        self._head = ""
        self._tail = ""
        self._cut = 0

    def add(self, text: str) -> None:
        """Append this."""
        room = self._half - len(self._head)
        self._head += text[:room]
        self._tail += text[room:]
        over = len(self._tail) - self._half
        if over > 0:
            self._tail = self._tail[over:]
            self._cut += over

    def text(self) -> str:
        """What is kept, and how much is not."""
        middle = f"\n[... {self._cut} characters left out ...]\n" if self._cut else ""
        return self._head + middle + self._tail


@dataclass(slots=True)
class KernelRun:
    """What came of a run of code. ``begun`` is False as long as it waits for another one's."""

    logs: Transcript
    images: list[str] = field(default_factory=list)
    outcome: Literal["completed", "error", "timeout", "ended"] = "ended"
    lost: bool = False
    begun: bool = False
    _replied: bool = False
    _idle: bool = False

    def take(self, kind: str, content: Mapping[str, Any]) -> bool:
        """A message of this run; whether it was the last one."""
        self.begun = True
        if kind == "stream":
            self.logs.add(_text(content.get("text")))
        elif kind in ("execute_result", "display_data"):
            self._shown(content.get("data"))
        elif kind == "error":
            trace = content.get("traceback")
            lines = [_text(line) for line in trace] if isinstance(trace, list) else []
            self.logs.add(_ANSI.sub("", "\n".join(lines)) + "\n")
        elif kind == "execute_reply":
            self.outcome = "completed" if content.get("status") == "ok" else "error"
            self._replied = True
        elif kind == "status" and content.get("execution_state") == "idle":
            self._idle = True
        return self._replied and self._idle

    def _shown(self, data: Any) -> None:
        data = data if isinstance(data, dict) else {}
        image = data.get("image/png")
        if isinstance(image, str) and len(image) <= _MOST_IMAGE:
            if len(self.images) < _MOST_IMAGES:
                self.images.append("".join(image.split()))
        elif text := _text(data.get("text/plain")):
            self.logs.add(text + "\n")


class Gateway:
    """One Jupyter server. ``timeout`` is the longest that a request may take, in seconds."""

    def __init__(self, settings: JupyterGatewaySettings, timeout: float) -> None:
        self.settings = settings
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start_kernel(self) -> str:
        """The id of a new kernel; raises RunnerFailed."""
        answer = await self._asked("POST", "/api/kernels", {"name": self.settings.kernel})
        ident = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(ident, str):
            raise _failed("it gave a new kernel no id")
        return ident

    async def end_kernel(self, kernel: str) -> None:
        """End a kernel, which need not be there; raises RunnerFailed."""
        with suppress(ContainerGone):  # it is what was wanted
            await self._asked("DELETE", f"/api/kernels/{kernel}")

    async def kernels(self) -> list[str]:
        """The names of the kernels that it can start; raises RunnerFailed."""
        answer = await self._asked("GET", "/api/kernelspecs")
        found = answer.get("kernelspecs") if isinstance(answer, dict) else None
        return list(found) if isinstance(found, dict) else []

    async def run(
        self, kernel: str, code: str, seconds: float, characters: int, *, silent: bool = False
    ) -> KernelRun:
        """Run code; past ``seconds`` it is interrupted, and past a while the kernel is started
        again. So it is where the caller is cancelled. Raises ContainerGone, and RunnerFailed also
        where other code runs for so long.
        """
        lock = self._locks.setdefault(kernel, asyncio.Lock())
        try:
            async with asyncio.timeout(seconds):
                await lock.acquire()
        except TimeoutError:
            raise _busy() from None
        try:
            return await self._run(kernel, code, seconds, characters, silent=silent)
        finally:
            lock.release()

    async def _run(
        self, kernel: str, code: str, seconds: float, characters: int, *, silent: bool
    ) -> KernelRun:
        run = KernelRun(Transcript(characters))
        try:
            async with asyncio.timeout(self._timeout):
                socket = await self._connected(kernel)
        except TimeoutError:
            raise _failed("it does not answer") from None
        except aiohttp.WSServerHandshakeError as error:
            if error.status == 404:
                raise ContainerGone from None
            raise _failed(f"it answered {error.status}") from None
        except aiohttp.ClientError:
            raise _failed("no connection can be made") from None
        try:
            ident = await _ask(socket, code, silent=silent)
            if await _ended(socket, ident, run, seconds):
                return run
            if not run.begun:
                raise _busy()  # another router's runs
            run.outcome = "timeout"
            await self._interrupt(kernel)
            if not await _ended(socket, ident, run, _INTERRUPT_SECONDS):
                await self._restart(kernel)
                run.lost = True
            run.outcome = "timeout"
        except asyncio.CancelledError:
            if run.begun:
                with suppress(ContainerGone, RunnerFailed):
                    await asyncio.shield(self._interrupt(kernel))
            raise
        except aiohttp.ClientError:
            raise _failed("the connection broke") from None
        finally:
            await socket.close()
        return run

    async def _connected(self, kernel: str) -> aiohttp.ClientWebSocketResponse:
        return await self._client().ws_connect(
            f"{self.settings.url}/api/kernels/{kernel}/channels",
            params={"session_id": secrets.token_hex(16)},
            headers=self._headers(),
            max_msg_size=_MOST_MESSAGE,
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
        )

    async def _interrupt(self, kernel: str) -> None:
        await self._asked("POST", f"/api/kernels/{kernel}/interrupt")

    async def _restart(self, kernel: str) -> None:
        await self._asked("POST", f"/api/kernels/{kernel}/restart")

    async def _asked(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of an answer, None for an empty one; raises ContainerGone, RunnerFailed."""
        try:
            async with self._client().request(
                method,
                self.settings.url + path,
                json=body,
                headers=self._headers(),
                allow_redirects=False,
            ) as answer:
                data = await answer.content.read(_MOST_ANSWER)
                if answer.status == 404 and path != "/api/kernels":
                    raise ContainerGone
                if answer.status >= 300:
                    raise _failed(f"it answered {answer.status}")
                return orjson.loads(data) if data else None
        except orjson.JSONDecodeError:
            raise _failed("its answer is not JSON") from None
        except TimeoutError:
            raise _failed("it does not answer") from None
        except aiohttp.ClientError:
            raise _failed("no connection can be made") from None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._timeout)
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        return self._session

    def _headers(self) -> dict[str, str]:
        token = self.settings.token
        return {} if token is None else {"Authorization": f"token {token.get_secret_value()}"}

    async def close(self) -> None:
        """End the connections."""
        if self._session is not None:
            await self._session.close()


async def _ask(socket: aiohttp.ClientWebSocketResponse, code: str, *, silent: bool) -> str:
    """Have code run; the id of the request."""
    ident = secrets.token_hex(16)
    header = {
        "msg_id": ident,
        "msg_type": "execute_request",
        "username": "pointsman",
        "session": secrets.token_hex(16),
        "date": datetime.now(UTC).isoformat(),
        "version": "5.3",
    }
    content = {
        "code": code,
        "silent": silent,
        "store_history": False,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": False,
    }
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
    await socket.send_json({**message, "channel": "shell", "buffers": []})
    return ident


async def _ended(
    socket: aiohttp.ClientWebSocketResponse, ident: str, run: KernelRun, seconds: float
) -> bool:
    """Take the messages of a run until it is over; False where ``seconds`` are."""
    try:
        async with asyncio.timeout(seconds):
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.TEXT:
                    continue
                told = orjson.loads(message.data)
                content = told.get("content") or {}
                kind = str(told.get("msg_type") or (told.get("header") or {}).get("msg_type"))
                state = content.get("execution_state")
                if kind == "status" and state in ("restarting", "dead"):
                    run.outcome, run.lost = "ended", True
                    return True
                if (told.get("parent_header") or {}).get("msg_id") == ident and run.take(
                    kind, content
                ):
                    return True
    except TimeoutError:
        return False
    except (orjson.JSONDecodeError, AttributeError):
        raise _failed("it sent what is no message") from None
    run.outcome, run.lost = "ended", True
    return True


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _busy() -> RunnerFailed:
    return RunnerFailed("The container is busy.", "container_busy")


def _failed(why: str) -> RunnerFailed:
    return RunnerFailed(f"The Jupyter gateway failed: {why}.", "gateway_failed")
