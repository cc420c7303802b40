"""Writes an ONNX model: the handful of protobuf messages that one takes, by hand.

An ONNX file is a ModelProto. The field numbers are those of onnx.proto (IR version 8), which never
change. Written this way the bytes depend on nothing but the graph, so that its hash can be known
in advance, and building a graph needs no package that running it does not need.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Attribute = int | float | Sequence[int]

__all__ = ["FLOAT", "INT64", "model", "node", "tensor", "value_info"]

FLOAT: Final = 1
INT64: Final = 7

_ELEMENT_TYPES: Final = {"<f4": FLOAT, "|u1": 2, "|i1": 3, "<i4": 6, "<i8": INT64}
_IR_VERSION: Final = 8
_VARINT: Final = 0
_BYTES: Final = 2
_FIXED32: Final = 5


def _varint(number: int) -> bytes:
    number &= 0xFFFF_FFFF_FFFF_FFFF  # a negative int64 is its two's complement
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _integer(field: int, number: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(number)


def _bytes(field: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return _varint(field << 3 | _BYTES) + _varint(len(raw)) + raw


def _float(field: int, number: float) -> bytes:
    return _varint(field << 3 | _FIXED32) + struct.pack("<f", number)


def tensor(name: str, array: NDArray[Any]) -> bytes:
    """A TensorProto: a constant of the graph."""
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    dims = b"".join(_integer(1, size) for size in array.shape)
    kind = _integer(2, _ELEMENT_TYPES[array.dtype.str])
    return dims + kind + _bytes(8, name) + _bytes(9, array.tobytes())


def node(
    operator: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    domain: str = "",
    attributes: Mapping[str, Attribute] | None = None,
) -> bytes:
    """A NodeProto; an empty name in ``inputs`` is an optional input that is left out."""
    message = b"".join(_bytes(1, name) for name in inputs)
    message += b"".join(_bytes(2, name) for name in outputs)
    message += _bytes(4, operator)
    for name, value in (attributes or {}).items():
        message += _bytes(5, _attribute(name, value))
    return message + (_bytes(7, domain) if domain else b"")


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return _bytes(1, name) + _float(2, value) + _integer(20, 1)
    if isinstance(value, int):
        return _bytes(1, name) + _integer(3, value) + _integer(20, 2)
    many = b"".join(_integer(8, number) for number in value)
    return _bytes(1, name) + many + _integer(20, 7)


def value_info(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    """A ValueInfoProto: an input or output of the graph; a name in ``shape`` is any size."""
    sizes = b"".join(
        _bytes(1, _bytes(2, size) if isinstance(size, str) else _integer(1, size)) for size in shape
    )
    tensor_type = _integer(1, kind) + _bytes(2, sizes)
    return _bytes(1, name) + _bytes(2, _bytes(1, tensor_type))


def model(
    nodes: Sequence[bytes],
    tensors: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
    opsets: Mapping[str, int],
) -> bytes:
    """A whole ModelProto, the content of the file."""
    graph = b"".join(
        (
            *(_bytes(1, message) for message in nodes),
            _bytes(2, "graph"),
            *(_bytes(5, message) for message in tensors),
            *(_bytes(11, message) for message in inputs),
            *(_bytes(12, message) for message in outputs),
        )
    )
    versions = b"".join(
        _bytes(8, _bytes(1, domain) + _integer(2, version)) for domain, version in opsets.items()
    )
    return _integer(1, _IR_VERSION) + versions + _bytes(7, graph)
