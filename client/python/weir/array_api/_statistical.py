"""Many elements made one, along some axes or all."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from weir._tensor import Tensor, TensorLike
from weir.array_api._calls import (
    DType,
    Shape,
    axes_of,
    axis_of,
    call,
    cast_to,
    has,
    shape_of,
    tensor,
    type_for,
)
from weir.array_api._elementwise import (
    add,
    divide,
    multiply,
    not_equal,
    sqrt,
    square,
    subtract,
)
from weir.array_api._manipulation import (
    concat,
    cut,
    moveaxis,
    permute_dims,
    reshape,
)

# pylint: disable=redefined-builtin
_Axes = int | tuple[int, ...] | None


def _shape_without(shape: Shape, axes: tuple[int, ...],
                   keepdims: builtins.bool) -> Shape:
    return tuple(1 if place in axes else extent
                 for place, extent in enumerate(shape)
                 if keepdims or place not in axes)


def _reduce(operator: str, x: Tensor, axis: _Axes,
            keepdims: builtins.bool) -> Tensor:
    """In x's type."""
    shape = shape_of(x)
    axes = axes_of(axis, len(shape))
    if not axes:
        return x
    dtype = type_for(operator, x.dtype)
    made = call(operator, cast_to(x, dtype), np.asarray(axes, np.int64),
                keepdims=int(keepdims), dtype=dtype,
                shape=_shape_without(shape, axes, keepdims))
    return cast_to(made, x.dtype)


def _sum_type(x: Tensor, dtype: DTypeLike | None) -> DType:
    """Integers add up in 64 bits, as NumPy has it."""
    if dtype is not None:
        return np.dtype(dtype)
    return np.dtype({"b": np.int64, "i": np.int64,
                     "u": np.uint64}.get(x.dtype.kind, x.dtype))


def _mean_type(x: Tensor) -> DType:
    return x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)


def sum(x: Tensor, /, *, axis: _Axes = None, dtype: DTypeLike | None = None,
        keepdims: builtins.bool = False) -> Tensor:
    """The sum; of integers in 64 bits, unless told another type."""
    return _reduce("ReduceSum", cast_to(x, _sum_type(x, dtype)), axis, keepdims)


def prod(x: Tensor, /, *, axis: _Axes = None, dtype: DTypeLike | None = None,
         keepdims: builtins.bool = False) -> Tensor:
    """The product; of integers in 64 bits, unless told another type."""
    operand = cast_to(x, _sum_type(x, dtype))
    if has("ReduceProd"):
        return _reduce("ReduceProd", operand, axis, keepdims)
    shape = shape_of(x)
    axes = axes_of(axis, len(shape))
    others = tuple(each for each in range(len(shape)) if each not in axes)
    count = math.prod(shape[each] for each in axes)
    rest = math.prod(shape[each] for each in others)
    made = reshape(permute_dims(operand, axes + others), (count, rest))
    while count > 1:
        half = count // 2
        product = multiply(cut(made, [slice(half), slice(None)]),
                           cut(made, [slice(half, 2 * half), slice(None)]))
        left = cut(made, [slice(2 * half, None), slice(None)])
        made = concat([product, left]) if count % 2 else product
        count -= half
    if count == 0:
        made = concat([made, tensor(np.ones((1, rest), operand.dtype))])
    return reshape(made, _shape_without(shape, axes, keepdims))


def mean(x: Tensor, /, *, axis: _Axes = None,
         keepdims: builtins.bool = False) -> Tensor:
    """The arithmetic mean; of integers a double."""
    return _reduce("ReduceMean", cast_to(x, _mean_type(x)), axis, keepdims)


def var(x: Tensor, /, *, axis: _Axes = None, correction: float = 0.0,
        keepdims: builtins.bool = False) -> Tensor:
    """The mean square of what is left without the mean, where the count is less
    `correction`."""
    result = _mean_type(x)
    shape = shape_of(x)
    axes = axes_of(axis, len(shape))
    # Squares of float16 soon pass its range.
    wide = cast_to(x, np.float32 if result == np.float16 else result)
    rest = subtract(wide, mean(wide, axis=axes, keepdims=True))
    count = math.prod(shape[each] for each in axes) - correction
    made = divide(sum(square(rest), axis=axes, keepdims=keepdims),
                  float(builtins.max(count, 0)))
    return cast_to(made, result)


def std(x: Tensor, /, *, axis: _Axes = None, correction: float = 0.0,
        keepdims: builtins.bool = False) -> Tensor:
    """The root of `var`."""
    return sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def _extreme(operator: str, x: Tensor, axis: _Axes,
             keepdims: builtins.bool) -> Tensor:
    shape = shape_of(x)
    if not builtins.all(shape[each] for each in axes_of(axis, len(shape))):
        raise ValueError(f"of no elements ({shape}) none is the greatest or "
                         "the least")
    return _reduce(operator, x, axis, keepdims)


def max(x: Tensor, /, *, axis: _Axes = None,
        keepdims: builtins.bool = False) -> Tensor:
    """The greatest; NaN if there is one. ValueError of no elements."""
    return _extreme("ReduceMax", x, axis, keepdims)


def min(x: Tensor, /, *, axis: _Axes = None,
        keepdims: builtins.bool = False) -> Tensor:
    """The least; NaN if there is one. ValueError of no elements."""
    return _extreme("ReduceMin", x, axis, keepdims)


def all(x: Tensor, /, *, axis: _Axes = None,
        keepdims: builtins.bool = False) -> Tensor:
    """Whether all are true, or not 0."""
    return _reduce("ReduceMin", cast_to(x, bool), axis, keepdims)


def any(x: Tensor, /, *, axis: _Axes = None,
        keepdims: builtins.bool = False) -> Tensor:
    """Whether one is true, or not 0."""
    return _reduce("ReduceMax", cast_to(x, bool), axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: _Axes = None,
                  keepdims: builtins.bool = False) -> Tensor:
    """How many are true, or not 0."""
    return sum(cast_to(x, bool), axis=axis, keepdims=keepdims)


def _accumulate(x: Tensor, axis: int | None, dtype: DTypeLike | None,
                include_initial: builtins.bool, neutral: int,
                function: Any) -> Tensor:
    """By steps of 1, 2, 4 and so on: what stands so far before is taken in."""
    made = cast_to(x, _sum_type(x, dtype))
    shape = shape_of(x)
    if axis is None:
        if len(shape) != 1:
            raise ValueError(f"a tensor of {len(shape)} axes needs to be told "
                             "one")
        axis = 0
    at = axis_of(axis, len(shape))
    made = moveaxis(made, at, 0)
    rest = [slice(None)] * (len(shape) - 1)
    step = 1
    while step < shape[at]:
        made = concat([cut(made, [slice(step), *rest]), function(
            cut(made, [slice(step, None), *rest]),
            cut(made, [slice(-step), *rest]))])
        step *= 2
    if include_initial:
        first = np.full((1, *shape[:at], *shape[at + 1:]), neutral, made.dtype)
        made = concat([tensor(first), made])
    return moveaxis(made, 0, at)


def cumulative_sum(x: Tensor, /, *, axis: int | None = None,
                   dtype: DTypeLike | None = None,
                   include_initial: builtins.bool = False) -> Tensor:
    """At each place of an axis the sum up to there, with 0 in front if asked
    for."""
    return _accumulate(x, axis, dtype, include_initial, 0, add)


def cumulative_prod(x: Tensor, /, *, axis: int | None = None,
                    dtype: DTypeLike | None = None,
                    include_initial: builtins.bool = False) -> Tensor:
    """At each place of an axis the product up to there, with 1 in front if
    asked for."""
    return _accumulate(x, axis, dtype, include_initial, 1, multiply)


def diff(x: Tensor, /, *, axis: int = -1, n: int = 1,
         prepend: TensorLike | None = None,
         append: TensorLike | None = None) -> Tensor:
    """The differences of neighbors along an axis, n times over; of truth
    values, whether they differ."""
    if n < 0:
        raise ValueError(f"there are no differences {n} times over")
    rank = len(shape_of(x))
    at = axis_of(axis, rank)
    made = concat([tensor(each) for each in (prepend, x, append)
                   if each is not None], axis=at)
    before, after = [slice(None)] * at, [slice(None)] * (rank - at - 1)
    for _ in range(n):
        function = not_equal if made.dtype.kind == "b" else subtract
        made = function(cut(made, [*before, slice(1, None), *after]),
                        cut(made, [*before, slice(-1), *after]))
    return made
