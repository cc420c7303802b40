"""Reads a safetensors file: eight bytes of length, a header in JSON, then the raw tensors."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Tensors = dict[str, NDArray[np.float32]]

__all__ = ["WeightsError", "read_tensors"]

_HEADER_LIMIT: Final = 1 << 20
_LENGTH_BYTES: Final = 8


class WeightsError(Exception):
    """The file is not the safetensors file that it should be."""


def read_tensors(content: bytes) -> Tensors:
    """The float32 tensors of ``content`` by name, as read-only views of it; others (the ids of
    positions) are left out. Raises WeightsError where the file is damaged.
    """
    start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    if not _LENGTH_BYTES < start <= min(len(content), _HEADER_LIMIT):
        raise WeightsError("the length of the header is not possible")
    try:
        header = json.loads(content[_LENGTH_BYTES:start])
    except ValueError:
        raise WeightsError("the header is not JSON") from None
    if not isinstance(header, dict):
        raise WeightsError("the header is not an object")
    data = memoryview(content)[start:]
    return {
        name: _tensor(name, about, data)
        for name, about in header.items()
        if isinstance(about, dict) and about.get("dtype") == "F32"
    }


def _tensor(name: str, about: dict[str, Any], data: memoryview) -> NDArray[np.float32]:
    shape: Any = about.get("shape")
    offsets: Any = about.get("data_offsets")
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        raise WeightsError(f"{name!r:.100} is not described as a tensor")
    begin, end = offsets
    if not begin <= end <= len(data) or end - begin != 4 * math.prod(shape):
        raise WeightsError(f"{name!r:.100} does not fit into the file")
    return np.frombuffer(data[begin:end], dtype="<f4").reshape(shape)


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)
