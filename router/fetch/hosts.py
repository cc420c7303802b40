"""Which hosts a client may have the router connect to, and at which addresses.

A host is looked up once. Whoever connects does so at exactly one of the addresses that were looked
at, whatever the name resolves to a moment later.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from router.errors import NoFileDescriptors
from router.fetch.address import is_public
from router.telemetry.descriptors import is_shortage

__all__ = ["PORTS", "Address", "HostCheck", "HostNotFound", "HostRefused", "Resolve"]

PORTS: Final = {"http": 80, "https": 443}
"""The schemes that the router connects by, and their usual ports."""

_MOST_ADDRESSES: Final = 4

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, for this port; raises OSError where it has none."""


class HostRefused(Exception):
    """The router does not connect there; the sentence, which holds no address, says why."""


class HostNotFound(Exception):
    """There is no such host."""


class HostCheck:
    """``resolve`` looks names up, ``public`` decides of an address."""

    def __init__(
        self, *, resolve: Resolve | None = None, public: Callable[[Address], bool] = is_public
    ) -> None:
        self._resolve = resolve or _AddressResolver()
        self._public = public

    async def addresses(
        self, host: str, port: int, scheme: str, listed: Sequence[str] | None
    ) -> Sequence[Address]:
        """Where to connect to, best first.

        ``listed`` are the only hosts that are allowed, wherever they are, as in ``fetch.hosts``;
        with None every address of the host must be public. Raises HostRefused, HostNotFound, or
        NoFileDescriptors.
        """
        if listed is not None and not _is_listed(host, port, scheme, listed):
            raise HostRefused(
                "The router is configured to fetch from certain hosts only, and this is none of "
                "them."
            )
        try:
            found = [ip_address(host)]
        except ValueError:
            found = await self._look_up(host, port)
        if listed is None and not all(map(self._public, found)):
            raise HostRefused(
                "Its host is not on the public Internet, and the router fetches from there only."
            )
        return found[:_MOST_ADDRESSES]

    def close(self) -> None:
        """Look up no more names."""
        if isinstance(self._resolve, _AddressResolver):
            self._resolve.close()

    async def _look_up(self, host: str, port: int) -> list[Address]:
        found: list[Address] = []
        try:
            found = [ip_address(text) for text in await self._resolve(host, port)]
        except (OSError, ValueError) as error:  # ValueError: no name can be so (UnicodeError)
            if is_shortage(error):
                raise NoFileDescriptors from error
        if not found:
            raise HostNotFound("Its host was not found.")
        return found


def _is_listed(host: str, port: int, scheme: str, hosts: Sequence[str]) -> bool:
    name = f"[{host}]" if ":" in host else host.rstrip(".").lower()
    for entry in hosts:
        listed, _, given = entry.rpartition(":") if _has_port(entry) else (entry, "", "")
        if port != (int(given) if given else PORTS[scheme]):
            continue
        if name == listed or (listed.startswith("*.") and name.endswith(listed[1:])):
            return True
    return False


def _has_port(entry: str) -> bool:
    return ":" in entry.rpartition("]")[2]


class _AddressResolver:
    """Asks the system, in threads of its own: slow name servers must not take those that the rest
    of the router works in.
    """

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(8, "resolve")
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _look_up, host, port)
        return list(dict.fromkeys(found))

    def close(self) -> None:
        """End the threads; a name that is being looked up is not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[str]:
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
