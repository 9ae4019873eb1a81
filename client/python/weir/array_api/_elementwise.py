"""Functions of one element, or of two in the same place. Types are promoted,
and shapes broadcast, as NumPy does it; integers count as doubles where a
function has fractions for a result. What no operator computes by itself is put
together out of those that there are."""

from __future__ import annotations

import operator as python
from collections.abc import Callable
from typing import Any

import numpy as np

from weir._record import Shape
from weir._tensor import Tensor, TensorLike
from weir.array_api._calls import (
    DType,
    call,
    cast_to,
    has,
    refuse,
    tensor,
    type_for,
)

# pylint: disable=redefined-builtin
_Operand = Tensor | np.ndarray[Any, Any]


def _shape_of(x: _Operand) -> Shape | None:
    """What is known of it."""
    return x._record.shape if isinstance(x, Tensor) else x.shape


def _together(shapes: list[Shape | None]) -> Shape | None:
    """Of what these make element by element; None if that is not known, or the
    server is to say what is wrong with it."""
    known = {shape for shape in shapes if shape != ()} or {()}
    if any(shape is None or None in shape for shape in known):
        return None
    if len(known) == 1:
        return known.pop()
    try:
        return np.broadcast_shapes(*known)  # type: ignore[arg-type]
    except ValueError:
        return None


def promoted(*operands: TensorLike) -> DType:
    """The type that NumPy has for them: Python's numbers have none of their
    own."""
    types = [
        each.dtype if isinstance(each, Tensor)
        else each if isinstance(each, (int, float))
        else np.asarray(each).dtype for each in operands]
    first = types[0]
    if isinstance(first, np.dtype) and all(each is first for each in types):
        return first
    return np.result_type(*types)


def _in(x: TensorLike, dtype: DType) -> _Operand:
    return cast_to(x, dtype) if isinstance(x, Tensor) else np.asarray(x, dtype)


def combine(operator: str, *operands: TensorLike, dtype: DType,
            result: DType | None = None) -> Tensor:
    """An operator of operands in one type. The result is of that, or of
    another that the operator has for it."""
    computed = type_for(operator, dtype)
    given = [_in(each, dtype) if computed == dtype else
             _in(_in(each, dtype), computed) for each in operands]
    made = call(operator, *given, dtype=result or computed,
                shape=_together([_shape_of(each) for each in given]))
    return made if result else cast_to(made, dtype)


def _numbers(function: str, dtype: DType) -> DType:
    if dtype.kind == "b":
        raise TypeError(f"weir.{function} is of numbers, not of truth values: "
                        "cast one of them first")
    return dtype


def _fractions(dtype: DType) -> DType:
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def _binary(function: str, operator: str, x1: TensorLike,
            x2: TensorLike) -> Tensor:
    return combine(operator, x1, x2,
                   dtype=_numbers(function, promoted(x1, x2)))


def _unary(function: str, operator: str, x: TensorLike) -> Tensor:
    """Of fractions."""
    if not has(operator):
        refuse(function, operator)
    operand = tensor(x)
    return combine(operator, operand, dtype=_fractions(operand.dtype))


def choose(condition: Tensor, x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 where the condition is true, else x2."""
    dtype = promoted(x1, x2)
    given = [condition, _in(x1, dtype), _in(x2, dtype)]
    return call("Where", *given, dtype=dtype,
                shape=_together([_shape_of(each) for each in given]))


# Arithmetic.


def add(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 + x2"""
    return _binary("add", "Add", x1, x2)


def subtract(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 - x2"""
    return _binary("subtract", "Sub", x1, x2)


def multiply(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 * x2"""
    return _binary("multiply", "Mul", x1, x2)


def divide(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 / x2"""
    return combine("Div", x1, x2, dtype=_fractions(promoted(x1, x2)))


def floor_divide(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 // x2, the integer at or below; of integers, as long as there is no
    operator Mod. InvalidArgument if one is divided by 0."""
    dtype = _numbers("floor_divide", promoted(x1, x2))
    if dtype.kind == "f":
        # Not the floor of x1 / x2, which may have been rounded up to it.
        left = subtract(x1, remainder(x1, x2))
        return round(divide(left, x2))
    quotient = combine("Div", x1, x2, dtype=dtype)
    if dtype.kind == "u":
        return quotient
    # That is the one toward zero.
    rest = subtract(x1, multiply(quotient, x2))
    below = logical_and(not_equal(rest, 0),
                        not_equal(less(rest, 0), less(x2, 0)))
    return subtract(quotient, cast_to(below, dtype))


def remainder(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 % x2, which has the sign of x2; of integers, as long as there is no
    operator Mod. InvalidArgument if one is divided by 0."""
    dtype = _numbers("remainder", promoted(x1, x2))
    if dtype.kind != "f":
        return subtract(x1, multiply(floor_divide(x1, x2), x2))
    if not has("Mod"):
        refuse("remainder", f"Mod, for {dtype}")
    rest = call("Mod", _in(x1, dtype), _in(x2, dtype), fmod=1, dtype=dtype,
                shape=None)
    away = logical_and(not_equal(rest, 0),
                       not_equal(less(rest, 0), less(x2, 0)))
    return choose(away, add(rest, x2), rest)


def pow(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 ** x2. ValueError for integers to a negative power; to those of a
    tensor, which are not known here, they give 0."""
    if (not isinstance(x2, Tensor) and promoted(x1, x2).kind in "iu"
            and np.any(np.asarray(x2) < 0)):
        raise ValueError("integers to negative powers are no integers: make "
                         "one of them a float")
    return _binary("pow", "Pow", x1, x2)


def negative(x: TensorLike, /) -> Tensor:
    """-x"""
    operand = tensor(x)
    dtype = _numbers("negative", operand.dtype)
    if dtype.kind == "u":
        return subtract(np.zeros((), dtype), operand)
    return combine("Neg", operand, dtype=dtype)


def positive(x: TensorLike, /) -> Tensor:
    """+x"""
    return tensor(x)._again()


def abs(x: TensorLike, /) -> Tensor:
    """The magnitude."""
    operand = tensor(x)
    return combine("Abs", operand, dtype=_numbers("abs", operand.dtype))


def square(x: TensorLike, /) -> Tensor:
    """x * x"""
    return multiply(x, x)


def reciprocal(x: TensorLike, /) -> Tensor:
    """1 / x"""
    return divide(1, x)


def sign(x: TensorLike, /) -> Tensor:
    """-1, 0 or 1; NaN of NaN."""
    operand = tensor(x)
    if has("Sign"):
        return combine("Sign", operand, dtype=operand.dtype)
    dtype = _numbers("sign", operand.dtype)
    one = np.ones((), dtype)
    zero = np.zeros((), dtype)
    # NaN stays that, and -0 becomes 0.
    rest = add(multiply(operand, zero), zero) if dtype.kind == "f" else zero
    made = choose(operand > 0, one, rest)
    return made if dtype.kind == "u" else choose(operand < 0, -one, made)


def maximum(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The greater; NaN if one of them is."""
    return _binary("maximum", "Max", x1, x2)


def minimum(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The lesser; NaN if one of them is."""
    return _binary("minimum", "Min", x1, x2)


def clip(x: Tensor, /, min: TensorLike | None = None,
         max: TensorLike | None = None) -> Tensor:
    """x, or min where that is more, or max where that is less; in the type of
    all of them. OverflowError for one of Python's integers that leaves none of
    x's type."""
    operand = tensor(x)
    dtype = _numbers("clip", operand.dtype)
    if dtype.kind in "iu":
        # What bounds nothing need not be of the type.
        limits = np.iinfo(dtype)
        min = None if isinstance(min, int) and min <= limits.min else min
        max = None if isinstance(max, int) and max >= limits.max else max
    dtype = promoted(operand, *(each for each in (min, max)
                                if each is not None))
    made = cast_to(operand, dtype)
    if min is not None:
        made = combine("Max", made, min, dtype=dtype)
    if max is not None:
        made = combine("Min", made, max, dtype=dtype)
    return made


# Comparisons.


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "Equal": python.eq, "Greater": python.gt, "Less": python.lt}


def _compare(operator: str, x1: TensorLike, x2: TensorLike) -> Tensor:
    """By their values, whatever the types of integers are."""
    truth = np.dtype(bool)
    for typed, number in ((x1, x2), (x2, x1)):
        if _is_beyond(number, typed):
            # All of the type are on the same side of it as 0 is.
            same = combine("Equal", typed, typed, dtype=promoted(typed),
                           result=truth)
            left, right = (0, number) if number is x2 else (number, 0)
            holds = _COMPARISONS[operator](left, right)  # type: ignore
            return same if holds else logical_not(same)
    dtype = promoted(x1, x2)
    kinds = promoted(x1).kind + promoted(x2).kind
    if kinds not in ("iu", "ui") or dtype.kind != "f":
        return combine(operator, x1, x2, dtype=dtype, result=truth)
    # Doubles do not tell all of int64 and uint64 apart.
    negative_one = less(x1 if kinds == "iu" else x2, 0)
    both = [_in(each, np.dtype(np.uint64)) for each in (x1, x2)]
    made = combine(operator, *both, dtype=np.dtype(np.uint64), result=truth)
    if operator == ("Less" if kinds == "iu" else "Greater"):
        return logical_or(negative_one, made)
    return logical_and(logical_not(negative_one), made)


def _is_beyond(number: object, typed: TensorLike) -> bool:
    """Whether it is an integer of Python's that the other's type does not
    have."""
    if not isinstance(number, int) or isinstance(typed, int | float):
        return False
    dtype = promoted(typed)
    return dtype.kind in "iu" and not (
        np.iinfo(dtype).min <= number <= np.iinfo(dtype).max)


def equal(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 == x2"""
    return _compare("Equal", x1, x2)


def not_equal(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 != x2"""
    return logical_not(equal(x1, x2))


def less(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 < x2"""
    _numbers("less", promoted(x1, x2))
    return _compare("Less", x1, x2)


def greater(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 > x2"""
    _numbers("greater", promoted(x1, x2))
    return _compare("Greater", x1, x2)


def less_equal(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 <= x2"""
    return logical_or(less(x1, x2), equal(x1, x2))


def greater_equal(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 >= x2"""
    return logical_or(greater(x1, x2), equal(x1, x2))


def isnan(x: TensorLike, /) -> Tensor:
    """Whether it is NaN."""
    return not_equal(x, x)


def isinf(x: TensorLike, /) -> Tensor:
    """Whether it is infinite."""
    operand = tensor(x)
    if operand.dtype.kind != "f":
        return not_equal(operand, operand)
    return equal(abs(operand), np.inf)


def isfinite(x: TensorLike, /) -> Tensor:
    """Whether it is a number."""
    operand = tensor(x)
    if operand.dtype.kind != "f":
        return equal(operand, operand)
    return less(abs(operand), np.inf)


def signbit(x: TensorLike, /) -> Tensor:
    """Whether it is less than 0, or -0. Of NaN: false."""
    return logical_or(less(x, 0), less(divide(1, x), 0))


def copysign(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The magnitude of x1 with the sign of x2; NaN counts as positive."""
    dtype = _fractions(promoted(x1, x2))
    magnitude = abs(_in(x1, dtype))
    return choose(signbit(_in(x2, dtype)), negative(magnitude), magnitude)


# Logic.


def _logic(operator: str, x1: TensorLike, x2: TensorLike) -> Tensor:
    return combine(operator, x1, x2, dtype=np.dtype(bool))


def logical_and(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Whether both are true, or not 0."""
    return _logic("And", x1, x2)


def logical_or(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Whether one is true, or not 0."""
    return _logic("Or", x1, x2)


def logical_xor(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Whether one alone is true, or not 0."""
    truth = np.dtype(bool)
    return not_equal(_in(x1, truth), _in(x2, truth))


def logical_not(x: TensorLike, /) -> Tensor:
    """Whether it is false, or 0."""
    return combine("Not", x, dtype=np.dtype(bool))


def _bits(function: str, operator: str, of_truth: str, x1: TensorLike,
          x2: TensorLike) -> Tensor:
    dtype = promoted(x1, x2)
    if dtype.kind == "b" and of_truth:
        return _logic(of_truth, x1, x2)
    if dtype.kind not in "iu":
        raise TypeError(f"weir.{function} is not of {dtype}")
    if not has(operator):
        refuse(function, operator)
    return combine(operator, x1, x2, dtype=dtype)


def bitwise_and(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 & x2, of truth values or integers."""
    return _bits("bitwise_and", "BitwiseAnd", "And", x1, x2)


def bitwise_or(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 | x2, of truth values or integers."""
    return _bits("bitwise_or", "BitwiseOr", "Or", x1, x2)


def bitwise_xor(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 ^ x2, of truth values or integers."""
    if promoted(x1, x2).kind == "b":
        return not_equal(x1, x2)
    return _bits("bitwise_xor", "BitwiseXor", "", x1, x2)


def bitwise_invert(x: TensorLike, /) -> Tensor:
    """~x, of truth values or integers."""
    operand = tensor(x)
    match operand.dtype.kind:
        case "b":
            return logical_not(operand)
        case "i":
            return subtract(np.array(-1, operand.dtype), operand)
        case "u":
            most = np.iinfo(operand.dtype).max
            return subtract(np.array(most, operand.dtype), operand)
    raise TypeError(f"weir.bitwise_invert is not of {operand.dtype}")


def bitwise_left_shift(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 << x2"""
    return _bits("bitwise_left_shift", "BitShift", "", x1, x2)


def bitwise_right_shift(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """x1 >> x2"""
    return _bits("bitwise_right_shift", "BitShift", "", x1, x2)


# Whole numbers near by.


def trunc(x: TensorLike, /) -> Tensor:
    """The nearest whole number toward 0."""
    operand = tensor(x)
    if _numbers("trunc", operand.dtype).kind != "f":
        return operand._again()
    # What has no fraction is kept, whatever its size.
    whole = greater_equal(abs(operand), 2.0 ** 52 if operand.dtype.itemsize == 8
                          else 2.0 ** 23 if operand.dtype.itemsize == 4
                          else 2.0 ** 10)
    near = cast_to(cast_to(abs(operand), np.int64), operand.dtype)
    near = choose(less(operand, 0), negative(near), near)
    return choose(logical_or(logical_or(whole, isnan(operand)),
                             equal(near, operand)), operand, near)


def floor(x: TensorLike, /) -> Tensor:
    """The nearest whole number that is not more."""
    operand = tensor(x)
    if _numbers("floor", operand.dtype).kind != "f":
        return operand._again()
    if has("Floor"):
        return _unary("floor", "Floor", operand)
    near = trunc(operand)
    return choose(greater(near, operand), subtract(near, 1), near)


def ceil(x: TensorLike, /) -> Tensor:
    """The nearest whole number that is not less."""
    operand = tensor(x)
    if _numbers("ceil", operand.dtype).kind != "f":
        return operand._again()
    if has("Ceil"):
        return _unary("ceil", "Ceil", operand)
    return negative(floor(negative(operand)))


def round(x: TensorLike, /) -> Tensor:
    """The nearest whole number, of two the even one."""
    operand = tensor(x)
    if _numbers("round", operand.dtype).kind != "f":
        return operand._again()
    if has("Round"):
        return _unary("round", "Round", operand)
    near = trunc(operand)
    rest = abs(subtract(operand, near))
    half = multiply(near, 0.5)
    away = logical_or(greater(rest, 0.5), logical_and(
        equal(rest, 0.5), not_equal(trunc(half), half)))
    further = choose(less(operand, 0), subtract(near, 1), add(near, 1))
    return choose(away, further, near)


# Exponentials and roots.


def exp(x: TensorLike, /) -> Tensor:
    """e ** x"""
    return _unary("exp", "Exp", x)


def log(x: TensorLike, /) -> Tensor:
    """The natural logarithm."""
    return _unary("log", "Log", x)


def sqrt(x: TensorLike, /) -> Tensor:
    """The square root."""
    return _unary("sqrt", "Sqrt", x)


def tanh(x: TensorLike, /) -> Tensor:
    """The hyperbolic tangent."""
    return _unary("tanh", "Tanh", x)


def expm1(x: TensorLike, /) -> Tensor:
    """e ** x - 1, also where x is small."""
    operand = cast_to(tensor(x), _fractions(tensor(x).dtype))
    power = exp(operand)
    less_one = subtract(power, 1)
    # As Kahan has it: both logarithm and difference have the same error.
    near = divide(multiply(less_one, operand), log(power))
    return choose(equal(power, 1), operand, choose(logical_or(
        less_one <= -0.5, greater(less_one, 1)), less_one, near))


def log1p(x: TensorLike, /) -> Tensor:
    """The logarithm of 1 + x, also where x is small."""
    operand = cast_to(tensor(x), _fractions(tensor(x).dtype))
    one_more = add(operand, 1)
    near = divide(multiply(log(one_more), operand), subtract(one_more, 1))
    return choose(equal(one_more, 1), operand, choose(logical_or(
        equal(one_more, 0), isinf(one_more)), log(one_more), near))


def _log_to(base: float, x: TensorLike) -> Tensor:
    """In double, whose rounding no other type sees."""
    operand = tensor(x)
    dtype = _fractions(operand.dtype)
    near = divide(log(cast_to(operand, np.float64)), np.log(base))
    if dtype == np.float64:
        # Powers of the base have whole logarithms. So much is added, that
        # there is no room for fractions.
        whole = subtract(add(near, 1.5 * 2.0 ** 52), 1.5 * 2.0 ** 52)
        near = choose(less(abs(subtract(near, whole)),
                           multiply(abs(whole), 2.0 ** -51)), whole, near)
    return cast_to(near, dtype)


def log2(x: TensorLike, /) -> Tensor:
    """The logarithm to base 2."""
    return _log_to(2, x)


def log10(x: TensorLike, /) -> Tensor:
    """The logarithm to base 10."""
    return _log_to(10, x)


def logaddexp(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The logarithm of the sum of e ** x1 and e ** x2."""
    dtype = _fractions(promoted(x1, x2))
    left, right = _in(x1, dtype), _in(x2, dtype)
    most = maximum(left, right)
    sum_ = add(most, log1p(exp(negative(abs(subtract(left, right))))))
    return choose(isinf(most), most, sum_)


def hypot(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The root of the sum of the squares."""
    dtype = _fractions(promoted(x1, x2))
    left, right = abs(_in(x1, dtype)), abs(_in(x2, dtype))
    most, least = maximum(left, right), minimum(left, right)
    root = multiply(most, sqrt(add(square(divide(least, most)), 1)))
    return choose(logical_or(isinf(left), isinf(right)), np.inf,
                  choose(equal(most, 0), most, root))


# What has no operator yet.


def sin(x: TensorLike, /) -> Tensor:
    """The sine."""
    return _unary("sin", "Sin", x)


def cos(x: TensorLike, /) -> Tensor:
    """The cosine."""
    return _unary("cos", "Cos", x)


def tan(x: TensorLike, /) -> Tensor:
    """The tangent."""
    return _unary("tan", "Tan", x)


def asin(x: TensorLike, /) -> Tensor:
    """The inverse of sin."""
    return _unary("asin", "Asin", x)


def acos(x: TensorLike, /) -> Tensor:
    """The inverse of cos."""
    return _unary("acos", "Acos", x)


def atan(x: TensorLike, /) -> Tensor:
    """The inverse of tan."""
    return _unary("atan", "Atan", x)


def sinh(x: TensorLike, /) -> Tensor:
    """The hyperbolic sine."""
    return _unary("sinh", "Sinh", x)


def cosh(x: TensorLike, /) -> Tensor:
    """The hyperbolic cosine."""
    return _unary("cosh", "Cosh", x)


def asinh(x: TensorLike, /) -> Tensor:
    """The inverse of sinh."""
    return _unary("asinh", "Asinh", x)


def acosh(x: TensorLike, /) -> Tensor:
    """The inverse of cosh."""
    return _unary("acosh", "Acosh", x)


def atanh(x: TensorLike, /) -> Tensor:
    """The inverse of tanh."""
    return _unary("atanh", "Atanh", x)


def atan2(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The angle of a point."""
    refuse("atan2", "Atan2")


def nextafter(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """The next number toward another."""
    refuse("nextafter", "NextAfter")


def conj(x: TensorLike, /) -> Tensor:
    """x, which is real."""
    return positive(x)


def real(x: TensorLike, /) -> Tensor:
    """x, which is real."""
    return positive(x)


def imag(x: TensorLike, /) -> Tensor:
    """The imaginary part: there are no complex elements."""
    refuse("imag", "Imag, for complex elements")
