"""The headers of an endpoint's answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

__all__ = ["Headers"]


class Headers(Mapping[str, str]):
    """Header fields as they were parsed, looked up without regard to case.

    ``fields`` has lower-case names; a field sent several times has its values joined by commas.
    Only what is looked up is decoded.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        try:
            return self._fields[name.lower().encode()].decode("latin-1")
        except KeyError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._fields)

    def __len__(self) -> int:
        return len(self._fields)
