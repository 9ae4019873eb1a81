"""Element types, and what becomes of two in one operation. They are NumPy's."""

from __future__ import annotations

import builtins
import dataclasses
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from weir._device import Device
from weir._tensor import Tensor
from weir.array_api._calls import DType, cast_to

# pylint: disable=redefined-builtin
bool = np.dtype(np.bool_)
int8 = np.dtype(np.int8)
int16 = np.dtype(np.int16)
int32 = np.dtype(np.int32)
int64 = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)
uint16 = np.dtype(np.uint16)
uint32 = np.dtype(np.uint32)
uint64 = np.dtype(np.uint64)
float16 = np.dtype(np.float16)
float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)


@dataclasses.dataclass(frozen=True, slots=True)
class FloatInfo:
    """What `finfo` says."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclasses.dataclass(frozen=True, slots=True)
class IntegerInfo:
    """What `iinfo` says."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(type: DTypeLike | Tensor) -> DType:
    return type.dtype if isinstance(type, Tensor) else np.dtype(type)


def finfo(type: DTypeLike | Tensor, /) -> FloatInfo:
    """The limits of a floating-point type."""
    found: Any = np.finfo(_dtype_of(type))
    return FloatInfo(found.bits, float(found.eps), float(found.max),
                     float(found.min), float(found.smallest_normal),
                     found.dtype)


def iinfo(type: DTypeLike | Tensor, /) -> IntegerInfo:
    """The limits of an integer type."""
    found = np.iinfo(_dtype_of(type))
    return IntegerInfo(found.bits, found.max, found.min, found.dtype)


def isdtype(dtype: DTypeLike, kind: Any) -> builtins.bool:
    """Whether a type is of a kind ("bool", "signed integer", "unsigned
    integer", "integral", "real floating", "complex floating", "numeric"), is
    another type, or is either of several."""
    return np.isdtype(np.dtype(dtype), kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The type that NumPy gives an operation with these operands: tensors,
    types, or numbers of Python's, which have none of their own. At least one
    has one."""
    return np.result_type(*(
        each.dtype if isinstance(each, Tensor) else each
        for each in arrays_and_dtypes))


def can_cast(from_: DTypeLike | Tensor, to: DTypeLike, /) -> builtins.bool:
    """Whether the one type holds all values of the other, as NumPy has it."""
    return np.can_cast(_dtype_of(from_), to)


def astype(x: Tensor, dtype: DTypeLike, /, *,
           copy: builtins.bool = True,
           device: Device | str | None = None) -> Tensor:
    """The elements of x in another type: to integers toward zero, and to the
    nearest that there is. x itself, if it has that type and `copy` is False."""
    moved = x if device is None else x.to_device(device)
    if moved.dtype == np.dtype(dtype):
        return moved._again() if copy else moved
    return cast_to(moved, dtype)
