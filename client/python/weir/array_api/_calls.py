"""Calls of operators, with what is known here of their results, so that no
server need be asked for it."""

from __future__ import annotations

import functools
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import DTypeLike

import weir
from weir import _dtypes
from weir._catalog import OPERATORS
from weir._evaluation import apply_one
from weir._tensor import Tensor, TensorLike

DType = np.dtype[Any]
# One whose extents are all known.
Shape = tuple[int, ...]


def call(operator: str, *operands: TensorLike | None, dtype: DType,
         shape: tuple[int | None, ...] | None, device: str = "",
         rng_seed: int | None = None, **attributes: object) -> Tensor:
    """The operator's first output, which is known to have this type, and this
    shape if there is one."""
    made = apply_one(OPERATORS[operator], operands, attributes, (), (),
                     device=device, rng_seed=rng_seed)
    record = made._record
    if record.dtype is None:
        record.dtype = dtype
    if shape is not None and (record.shape is None or None in record.shape):
        record.shape = shape
    return made


def has(operator: str) -> bool:
    """Whether the catalog that the package was built with has it."""
    return operator in OPERATORS


def refuse(function: str, needs: str) -> NoReturn:
    """Says which operator a function is still without."""
    raise NotImplementedError(
        f"weir.{function} needs the operator {needs}, which weir does not have "
        "yet")


def shape_of(x: Tensor) -> Shape:
    """Its extents, all of them: waits for the tensor where they are not known
    before it is there."""
    shape = x.shape
    if shape is None or None in shape:
        shape = x.evaluate().shape
    assert shape is not None
    return cast(Shape, shape)


def cast_to(x: Tensor, dtype: DTypeLike) -> Tensor:
    """Itself, if it has that type."""
    wanted = np.dtype(dtype)
    if x.dtype == wanted:
        return x
    return call("Cast", x, to=_dtypes.number_of(wanted), dtype=wanted,
                shape=x._record.shape)


@functools.lru_cache(maxsize=4096)
def type_for(operator: str, dtype: DType) -> DType:
    """The type in which an operator may compute what is asked for in `dtype`:
    that itself, or a wider one, from which a cast brings the same back."""
    taken = OPERATORS[operator].inputs[0].types
    wider = [dtype, *map(np.dtype, {
        "b": ("uint8", "int32"), "i": ("int16", "int32", "int64"),
        # The bits of a product of int64 are those of uint64.
        "u": ("uint16", "uint32", "uint64", "int64")}.get(dtype.kind, ()))]
    for each in wider:
        if each.itemsize >= dtype.itemsize and any(
                _dtypes.BY_NAME.get(name) == each for name in taken):
            return each
    raise TypeError(f"{operator} has no code for {dtype}")


def tensor(x: TensorLike) -> Tensor:
    """Itself, or an array brought to the current connection's server."""
    if isinstance(x, Tensor):
        return x
    return weir.asarray(x)


def axis_of(axis: int, rank: int) -> int:
    """From 0 on. IndexError if there is none."""
    if not -rank <= axis < rank:
        raise IndexError(f"axis {axis} of a tensor of {rank} axes")
    return axis % rank


def axes_of(axes: int | tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Each from 0 on; all for None. ValueError for one that comes twice."""
    if axes is None:
        return tuple(range(rank))
    listed = (axes,) if isinstance(axes, int | np.integer) else axes
    found = tuple(axis_of(int(each), rank) for each in listed)
    if len(set(found)) != len(found):
        raise ValueError(f"an axis twice in {axes}")
    return found
