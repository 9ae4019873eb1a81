"""Element types: NumPy's for the wire's, and back."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from weir._proto import tensor_pb2

_NAMES = {
    "FLOAT": np.float32, "UINT8": np.uint8, "INT8": np.int8,
    "UINT16": np.uint16, "INT16": np.int16, "INT32": np.int32,
    "INT64": np.int64, "BOOL": np.bool_, "FLOAT16": np.float16,
    "DOUBLE": np.float64, "UINT32": np.uint32, "UINT64": np.uint64}
BY_NAME: dict[str, np.dtype[Any]] = {
    name: np.dtype(dtype) for name, dtype in _NAMES.items()}
_NUMBERS = {dtype: tensor_pb2.DataType.Value(f"DATA_TYPE_{name}")
            for name, dtype in BY_NAME.items()}
_OF_NUMBERS = {number: dtype for dtype, number in _NUMBERS.items()}


def number_of(dtype: DTypeLike) -> int:
    """The wire's number of a type. TypeError for one that weir does not
    have."""
    wanted = np.dtype(dtype)
    number = _NUMBERS.get(wanted)
    if number is None:
        number = _NUMBERS.get(wanted.newbyteorder("="))
    if number is None:
        raise TypeError(
            f"weir has no element type {wanted}; it has "
            f"{', '.join(map(str, _NUMBERS))}")
    return number


def of_number(number: int) -> np.dtype[Any]:
    """NumPy's type for the wire's. TypeError for those that it does not
    have."""
    dtype = _OF_NUMBERS.get(number)
    if dtype is None:
        name = tensor_pb2.DataType.Name(number)
        raise TypeError(
            f"NumPy has no {name.removeprefix('DATA_TYPE_').lower()}: cast the "
            "tensor on the server first, by weir.ops.cast(x, to=\"float32\")")
    return dtype


def to_value(array: NDArray[Any]) -> tensor_pb2.TensorValue:
    """A copy of the array, as the wire has it."""
    spec = tensor_pb2.TensorSpec(
        dtype=number_of(array.dtype),  # type: ignore[arg-type]
        shape=array.shape)
    if array.dtype.byteorder == ">" or sys.byteorder == "big":
        array = array.astype(array.dtype.newbyteorder("<"))
    return tensor_pb2.TensorValue(spec=spec, raw=array.tobytes())


@functools.lru_cache(maxsize=4096)
def small_value(dtype: str, shape: tuple[int, ...],
                raw: bytes) -> tensor_pb2.TensorValue:
    """As `to_value`, of an array's parts (`dtype` as NumPy's `str`): one for
    all that ask, who are not to change it."""
    return to_value(np.frombuffer(raw, dtype).reshape(shape))


def to_array(value: tensor_pb2.TensorValue) -> NDArray[Any]:
    """An array of its own."""
    dtype = of_number(value.spec.dtype).newbyteorder("<")
    flat = np.frombuffer(bytearray(value.raw), dtype)
    return flat.reshape(value.spec.shape).astype(
        dtype.newbyteorder("="), copy=False)
