"""What Python's operators mean for tensors: functions of the array API."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

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
        return weir.add(_tensor(self), other)

    def __radd__(self, other: TensorLike) -> Tensor:
        return weir.add(other, _tensor(self))

    def __sub__(self, other: TensorLike) -> Tensor:
        return weir.subtract(_tensor(self), other)

    def __rsub__(self, other: TensorLike) -> Tensor:
        return weir.subtract(other, _tensor(self))

    def __mul__(self, other: TensorLike) -> Tensor:
        return weir.multiply(_tensor(self), other)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return weir.multiply(other, _tensor(self))

    def __truediv__(self, other: TensorLike) -> Tensor:
        return weir.divide(_tensor(self), other)

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return weir.divide(other, _tensor(self))

    def __floordiv__(self, other: TensorLike) -> Tensor:
        return weir.floor_divide(_tensor(self), other)

    def __rfloordiv__(self, other: TensorLike) -> Tensor:
        return weir.floor_divide(other, _tensor(self))

    def __mod__(self, other: TensorLike) -> Tensor:
        return weir.remainder(_tensor(self), other)

    def __rmod__(self, other: TensorLike) -> Tensor:
        return weir.remainder(other, _tensor(self))

    def __pow__(self, other: TensorLike) -> Tensor:
        return weir.pow(_tensor(self), other)

    def __rpow__(self, other: TensorLike) -> Tensor:
        return weir.pow(other, _tensor(self))

    def __matmul__(self, other: TensorLike) -> Tensor:
        return weir.matmul(_tensor(self), other)

    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return weir.matmul(other, _tensor(self))

    def __and__(self, other: TensorLike) -> Tensor:
        return weir.bitwise_and(_tensor(self), other)

    def __rand__(self, other: TensorLike) -> Tensor:
        return weir.bitwise_and(other, _tensor(self))

    def __or__(self, other: TensorLike) -> Tensor:
        return weir.bitwise_or(_tensor(self), other)

    def __ror__(self, other: TensorLike) -> Tensor:
        return weir.bitwise_or(other, _tensor(self))

    def __xor__(self, other: TensorLike) -> Tensor:
        return weir.bitwise_xor(_tensor(self), other)

    def __rxor__(self, other: TensorLike) -> Tensor:
        return weir.bitwise_xor(other, _tensor(self))

    def __lshift__(self, other: TensorLike) -> Tensor:
        return weir.bitwise_left_shift(_tensor(self), other)

    def __rlshift__(self, other: TensorLike) -> Tensor:
        return weir.bitwise_left_shift(other, _tensor(self))

    def __rshift__(self, other: TensorLike) -> Tensor:
        return weir.bitwise_right_shift(_tensor(self), other)

    def __rrshift__(self, other: TensorLike) -> Tensor:
        return weir.bitwise_right_shift(other, _tensor(self))

    def __lt__(self, other: TensorLike) -> Tensor:
        return weir.less(_tensor(self), other)

    def __gt__(self, other: TensorLike) -> Tensor:
        return weir.greater(_tensor(self), other)

    def __le__(self, other: TensorLike) -> Tensor:
        return weir.less_equal(_tensor(self), other)

    def __ge__(self, other: TensorLike) -> Tensor:
        return weir.greater_equal(_tensor(self), other)

    def __eq__(self, other: TensorLike) -> Tensor:  # type: ignore[override]
        return weir.equal(_tensor(self), other)

    def __ne__(self, other: TensorLike) -> Tensor:  # type: ignore[override]
        return weir.not_equal(_tensor(self), other)

    def __invert__(self) -> Tensor:
        return weir.bitwise_invert(_tensor(self))

    def __neg__(self) -> Tensor:
        return weir.negative(_tensor(self))

    def __pos__(self) -> Tensor:
        return weir.positive(_tensor(self))

    def __abs__(self) -> Tensor:
        return weir.abs(_tensor(self))

    def __iadd__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.add, other)

    def __isub__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.subtract, other)

    def __imul__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.multiply, other)

    def __itruediv__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.divide, other)

    def __ifloordiv__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.floor_divide, other)

    def __imod__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.remainder, other)

    def __ipow__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.pow, other)

    def __imatmul__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.matmul, other)

    def __iand__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.bitwise_and, other)

    def __ior__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.bitwise_or, other)

    def __ixor__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.bitwise_xor, other)

    def __ilshift__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.bitwise_left_shift, other)

    def __irshift__(self, other: TensorLike) -> Tensor:
        return _change(_tensor(self), weir.bitwise_right_shift, other)


def _tensor(self: Arithmetic) -> Tensor:
    return cast("Tensor", self)


def _change(x: Tensor, function: Callable[..., Tensor],
            other: TensorLike) -> Tensor:
    made = function(x, other)
    if not np.can_cast(made.dtype, x.dtype, "same_kind"):
        raise TypeError(f"the result is of {made.dtype}, which a tensor of "
                        f"{x.dtype} does not take in place")
    if made.shape != x.shape:
        raise ValueError(f"the result has the shape {made.shape}, which a "
                         f"tensor of shape {x.shape} does not take in place")
    x._become(made.astype(x.dtype, copy=False))
    return x
