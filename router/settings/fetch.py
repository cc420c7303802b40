"""The settings of what the router fetches because a client says so."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator

from router.settings.section import Section
from router.settings.values import Positive, Seconds, Text, not_empty, wrong

__all__ = ["FetchHost", "FetchSettings"]

_HOST: Final = re.compile(
    r"(?:(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?"
)


def _host(value: str) -> str:
    if not _HOST.fullmatch(value):
        raise wrong('must be like "example.com", "*.example.com", "10.0.0.7:8080" or "[::1]:8080"')
    return value.lower()


FetchHost = Annotated[Text, AfterValidator(_host)]


class FetchSettings(Section):
    """What the router fetches on a client's word: images and files by URL, for endpoints that take
    none.

    Without ``hosts`` from any host whose addresses are public. With them from these only, wherever
    they are: a name, a pattern for all names below one (``*.example.com``), or an address, each
    with the port where it is not the usual one of http or https. ``max_mb`` bounds one file in
    MiB, ``timeout`` what it takes to fetch it, redirects included.
    """

    files: bool = True
    """Whether files by URL are fetched for endpoints that read none themselves."""
    images: bool = True
    """Whether images by URL are fetched for endpoints that take them as data only."""
    hosts: Annotated[tuple[FetchHost, ...], AfterValidator(not_empty)] | None = None
    """The only hosts to fetch from; without it, all that are public."""
    max_mb: Positive = 20.0
    """The largest image or file, in MiB."""
    timeout: Seconds = 15.0
    """The longest that an image or a file may take, redirects included."""
