"""What Python's operators mean for tensors: functions of the array API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

# Whose functions are there by the time that an operator is used.
import weir

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir._tensor import Tensor, TensorLike


class Arithmetic:
    """Of what is a Tensor. `x += y` gives x, and all names of it, the elements
    of x + y in x's type; TypeError or ValueError where they do not fit it."""

    __slots__ = ()

    def __add__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.add, other)

    def __radd__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.add, other)

    def __sub__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.subtract, other)

    def __rsub__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.subtract, other)

    def __mul__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.multiply, other)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.multiply, other)

    def __truediv__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.divide, other)

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.divide, other)

    def __floordiv__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.floor_divide, other)

    def __rfloordiv__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.floor_divide, other)

    def __mod__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.remainder, other)

    def __rmod__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.remainder, other)

    def __pow__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.pow, other)

    def __rpow__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.pow, other)

    def __matmul__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.matmul, other)

    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.matmul, other)

    def __and__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.bitwise_and, other)

    def __rand__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.bitwise_and, other)

    def __or__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.bitwise_or, other)

    def __ror__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.bitwise_or, other)

    def __xor__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.bitwise_xor, other)

    def __rxor__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.bitwise_xor, other)

    def __lshift__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.bitwise_left_shift, other)

    def __rlshift__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.bitwise_left_shift, other)

    def __rshift__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.bitwise_right_shift, other)

    def __rrshift__(self, other: TensorLike) -> Tensor:
        return _right(self, weir.bitwise_right_shift, other)

    def __lt__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.less, other)

    def __gt__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.greater, other)

    def __le__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.less_equal, other)

    def __ge__(self, other: TensorLike) -> Tensor:
        return _left(self, weir.greater_equal, other)

    def __eq__(self, other: TensorLike) -> Tensor:  # type: ignore[override]
        return _left(self, weir.equal, other)

    def __ne__(self, other: TensorLike) -> Tensor:  # type: ignore[override]
        return _left(self, weir.not_equal, other)

    def __invert__(self) -> Tensor:
        return weir.bitwise_invert(cast("Tensor", self))

    def __neg__(self) -> Tensor:
        return weir.negative(cast("Tensor", self))

    def __pos__(self) -> Tensor:
        return weir.positive(cast("Tensor", self))

    def __abs__(self) -> Tensor:
        return weir.abs(cast("Tensor", self))

    def __iadd__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.add, other)

    def __isub__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.subtract, other)

    def __imul__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.multiply, other)

    def __itruediv__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.divide, other)

    def __ifloordiv__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.floor_divide, other)

    def __imod__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.remainder, other)

    def __ipow__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.pow, other)

    def __imatmul__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.matmul, other)

    def __iand__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.bitwise_and, other)

    def __ior__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.bitwise_or, other)

    def __ixor__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.bitwise_xor, other)

    def __ilshift__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.bitwise_left_shift, other)

    def __irshift__(self, other: TensorLike) -> Tensor:
        return _change(self, weir.bitwise_right_shift, other)


def _leaves_it(other: object) -> bool:
    """Whether an operand asks to be left the work, as those do that NumPy
    leaves it."""
    return (getattr(other, "__array_ufunc__", other) is None
            and not isinstance(other, Arithmetic))


def _left(x: Arithmetic, function: Callable[[Any, Any], Tensor],
          other: object) -> Tensor:
    return NotImplemented if _leaves_it(other) else function(x, other)


def _right(x: Arithmetic, function: Callable[[Any, Any], Tensor],
           other: object) -> Tensor:
    return NotImplemented if _leaves_it(other) else function(other, x)


def _change(changed: Arithmetic, function: Callable[[Any, Any], Tensor],
            other: object) -> Tensor:
    if _leaves_it(other):
        return NotImplemented  # type: ignore[no-any-return]
    x = cast("Tensor", changed)
    made = function(x, other)
    if not np.can_cast(made.dtype, x.dtype, "same_kind"):
        raise TypeError(f"the result is of {made.dtype}, which a tensor of "
                        f"{x.dtype} does not take in place")
    if made.shape != x.shape:
        raise ValueError(f"the result has the shape {made.shape}, which a "
                         f"tensor of shape {x.shape} does not take in place")
    x._become(made.astype(x.dtype, copy=False))
    return x
