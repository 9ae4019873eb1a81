"""Where elements are; and what has no operator yet: their order."""

from __future__ import annotations

import builtins

import numpy as np

from weir._tensor import Tensor, TensorLike
from weir.array_api._calls import axis_of, call, cast_to, refuse, shape_of
from weir.array_api._elementwise import bitwise_invert, choose, negative
from weir.array_api._manipulation import reshape


def where(condition: Tensor, x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 where the condition is true, else x2."""
    return choose(cast_to(condition, np.bool_), x1, x2)


def argmax(x: Tensor, /, *, axis: int | None = None,
           keepdims: builtins.bool = False) -> Tensor:
    """The place of the greatest along an axis, of several the first; None: of x
    made flat. That of NaN, if there is one."""
    shape = shape_of(x)
    flat = axis is None
    operand = reshape(x, (-1,)) if axis is None else x
    at = axis_of(axis or 0, len(shape_of(operand)))
    if operand.dtype.kind == "b":
        operand = cast_to(operand, np.uint8)
    extents = shape_of(operand)
    if extents[at] == 0:
        raise ValueError(f"of no elements ({shape}) none is the greatest or "
                         "the least")
    made = call("ArgMax", operand, axis=at, keepdims=int(keepdims and not flat),
                dtype=np.dtype(np.int64), shape=extents[:at] + (
                    (1,) if keepdims and not flat else ()) + extents[at + 1:])
    return reshape(made, (1,) * len(shape)) if keepdims and flat else made


def argmin(x: Tensor, /, *, axis: int | None = None,
           keepdims: builtins.bool = False) -> Tensor:
    """The place of the least, as `argmax`."""
    turned = negative(x) if x.dtype.kind == "f" else bitwise_invert(x)
    return argmax(turned, axis=axis, keepdims=keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Where elements are true, or not 0."""
    refuse("nonzero", "NonZero")


def searchsorted(x1: Tensor, x2: TensorLike, /, *, side: str = "left",
                 sorter: Tensor | None = None) -> Tensor:
    """Where elements would stand in a sorted tensor."""
    refuse("searchsorted", "SearchSorted")


def sort(x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False,
         stable: builtins.bool = True) -> Tensor:
    """In their order along an axis."""
    refuse("sort", "TopK")


def argsort(x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False,
            stable: builtins.bool = True) -> Tensor:
    """The places that put them in order along an axis."""
    refuse("argsort", "TopK")


def unique_all(x: Tensor, /) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Each value once, with its first place, its number, and its count."""
    refuse("unique_all", "Unique")


def unique_counts(x: Tensor, /) -> tuple[Tensor, Tensor]:
    """Each value once, with its count."""
    refuse("unique_counts", "Unique")


def unique_inverse(x: Tensor, /) -> tuple[Tensor, Tensor]:
    """Each value once, with its number."""
    refuse("unique_inverse", "Unique")


def unique_values(x: Tensor, /) -> Tensor:
    """Each value once."""
    refuse("unique_values", "Unique")
