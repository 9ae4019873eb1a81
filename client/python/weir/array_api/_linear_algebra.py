"""Products of matrices and vectors, over the last axes of stacks of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weir._tensor import Tensor, TensorLike
from weir.array_api._calls import (
    axes_of,
    axis_of,
    call,
    cast_to,
    shape_of,
    tensor,
    type_for,
)
from weir.array_api._elementwise import multiply, promoted
from weir.array_api._manipulation import permute_dims, reshape
from weir.array_api._statistical import sum as sum_of


def matmul(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 @ x2: the last axis of the one over the last but one of the other, or
    over its only one; stacks of matrices broadcast. ValueError for what has no
    axis."""
    dtype = promoted(x1, x2)
    computed = type_for("MatMul", dtype)
    given = [cast_to(cast_to(each, dtype), computed)
             if isinstance(each, Tensor) else np.asarray(each, computed)
             for each in (x1, x2)]
    known = [each._record.shape if isinstance(each, Tensor) else each.shape
             for each in given]
    shape = None
    if all(each is not None and None not in each for each in known):
        left, right = known[0] or (), known[1] or ()
        if not left or not right:
            raise ValueError("a product of matrices needs axes: use x1 * x2")
        shape = _shape_of_product(left, right)  # type: ignore[arg-type]
    return cast_to(call("MatMul", *given, dtype=computed, shape=shape), dtype)


def _shape_of_product(left: tuple[int, ...],
                      right: tuple[int, ...]) -> tuple[int, ...] | None:
    """None for what the server is to refuse."""
    if left[-1] != (right[-2] if len(right) > 1 else right[0]):
        return None
    try:
        stack = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        return None
    return (stack + (left[-2:-1] if len(left) > 1 else ()) +
            (right[-1:] if len(right) > 1 else ()))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """With its last two axes exchanged."""
    rank = len(shape_of(x))
    if rank < 2:
        raise ValueError(f"a tensor of {rank} axes is no matrix")
    return permute_dims(x, (*range(rank - 2), rank - 1, rank - 2))


def tensordot(x1: Tensor, x2: Tensor, /, *,
              axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum of products over so many last axes of x1 and first of x2, or over
    these of each."""
    left, right = shape_of(x1), shape_of(x2)
    if isinstance(axes, int | np.integer):
        if not 0 <= axes <= min(len(left), len(right)):
            raise ValueError(f"there are no {axes} axes in both {left} and "
                             f"{right}")
        over = tuple(range(len(left) - axes, len(left))), tuple(range(axes))
    else:
        over = (axes_of(tuple(axes[0]), len(left)),
                axes_of(tuple(axes[1]), len(right)))
    summed = [left[axis] for axis in over[0]]
    if summed != [right[axis] for axis in over[1]]:
        raise ValueError(f"the axes {over[0]} of {left} and {over[1]} of "
                         f"{right} differ")
    kept = ([axis for axis in range(len(left)) if axis not in over[0]],
            [axis for axis in range(len(right)) if axis not in over[1]])
    rows = tuple(left[axis] for axis in kept[0])
    columns = tuple(right[axis] for axis in kept[1])
    count = math.prod(summed)
    product = matmul(
        reshape(permute_dims(x1, (*kept[0], *over[0])),
                (math.prod(rows), count)),
        reshape(permute_dims(x2, (*over[1], *kept[1])),
                (count, math.prod(columns))))
    return reshape(product, rows + columns)


def vecdot(x1: TensorLike, x2: TensorLike, /, *, axis: int = -1) -> Tensor:
    """The sum of products along an axis from the end; the others broadcast."""
    left, right = tensor(x1), tensor(x2)
    dtype = promoted(left, right)
    for each in (left, right):
        axis_of(axis, len(shape_of(each)))
    if axis >= 0:
        raise ValueError("the axis is counted from the end, from -1 on")
    if shape_of(left)[axis] != shape_of(right)[axis]:
        raise ValueError(f"the axes {axis} of {left.shape} and {right.shape} "
                         "differ")
    return cast_to(sum_of(multiply(left, right), axis=axis), dtype)
