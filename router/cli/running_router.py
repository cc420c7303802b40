"""A running router, as the commands see that ask one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from router.cli.terminal import printable

if TYPE_CHECKING:
    from router.settings.schema import Settings

__all__ = ["CommandError", "RunningRouter", "address", "is_url"]

_SECONDS: Final = 10.0
_MAX_BYTES: Final = 64 * 1024 * 1024
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where it listens: how to get there


class CommandError(Exception):
    """What to tell the user; ``status`` is the exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def is_url(text: str) -> bool:
    """Whether it can be a router's address; credentials and queries do not belong there."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    return bool(usable) and "@" not in parts.netloc and not (parts.query or parts.fragment)


def address(settings: Settings, config: Path) -> str:
    """Where the router of this file listens; raises CommandError where the file does not say."""
    server = settings.server
    if not server.port:
        raise CommandError(f"{config}: server.port is 0, any free one; say which with --url")
    host = _ANY_ADDRESS.get(server.host, server.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"


@dataclass(frozen=True, slots=True)
class RunningRouter:
    """Its ``url`` has no path at the end; ``key_name`` is what messages call the key.

    Every method raises CommandError.
    """

    url: str
    key: str | None = field(repr=False)
    key_name: str

    async def ask(self, method: str, path: str) -> bytes:
        """The body of its answer, which has to be a 200."""
        status, body = await self._answer(method, path)
        if status != 200:
            raise self._refused(status, body)
        return body

    def decoded(self, body: bytes) -> Any:
        """The JSON of an answer."""
        import orjson

        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            raise self.unknown() from None

    def unknown(self) -> CommandError:
        """For an answer that no Pointsman router gives."""
        return CommandError(
            f"pointsman: {self.url} is no Pointsman router that this command knows", 2
        )

    async def _answer(self, method: str, path: str) -> tuple[int, bytes]:
        import aiohttp

        # No proxy, and nothing that is redirected: the key is for this address only.
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        headers = {"Authorization": f"Bearer {self.key}"} if self.key is not None else {}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as http,
                http.request(
                    method, self.url + path, headers=headers, allow_redirects=False
                ) as response,
            ):
                body = await response.content.read(_MAX_BYTES)
                while not response.content.at_eof():
                    body += await response.content.read(_MAX_BYTES)
                    if len(body) > _MAX_BYTES:
                        raise self.unknown()
                return response.status, body
        except TimeoutError:
            raise CommandError(
                f"pointsman: {self.url} did not answer in {_SECONDS:g} s", 2
            ) from None
        except aiohttp.ClientConnectorError as exc:
            reason = os.strerror(exc.errno) if exc.errno and exc.errno > 0 else printable(str(exc))
            raise CommandError(f"pointsman: no router answers at {self.url}: {reason}", 2) from None
        except (aiohttp.ClientError, ValueError, OSError) as exc:
            raise CommandError(f"pointsman: {self.url}: {printable(str(exc))}", 2) from None

    def _refused(self, status: int, body: bytes) -> CommandError:
        if status == 401:
            verb = "refuses" if self.key is not None else "wants a key:"
            return CommandError(f"pointsman: the router at {self.url} {verb} {self.key_name}")
        try:
            message = str(self.decoded(body)["error"]["message"])
        except (CommandError, KeyError, TypeError):
            return CommandError(f"pointsman: {self.url} is no Pointsman router: HTTP {status}", 2)
        return CommandError(f"pointsman: {printable(message)}")
