#!/usr/bin/env python3
"""The functions of the Python array API standard, against NumPy's."""

import copy
import math
import pickle

from spaces_server import WithServer
import numpy as np
import skipping
import weir as xp

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("float16", "float32", "float64")
NUMBERS = INTEGERS + FLOATS
ALL = ("bool", *NUMBERS)

# What the standard has, version 2024.12.
NAMES = {
    "e inf nan newaxis pi",
    "__array_namespace_info__ astype can_cast finfo from_dlpack iinfo isdtype "
    "result_type",
    "arange asarray empty empty_like eye full full_like linspace meshgrid ones "
    "ones_like tril triu zeros zeros_like",
    "abs acos acosh add asin asinh atan atan2 atanh bitwise_and "
    "bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift "
    "bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor "
    "floor_divide greater greater_equal hypot imag isfinite isinf isnan less "
    "less_equal log log1p log2 log10 logaddexp logical_and logical_not "
    "logical_or logical_xor maximum minimum multiply negative nextafter "
    "not_equal positive pow real reciprocal remainder round sign signbit sin "
    "sinh square sqrt subtract tan tanh trunc",
    "take take_along_axis matmul matrix_transpose tensordot vecdot",
    "broadcast_arrays broadcast_to concat expand_dims flip moveaxis "
    "permute_dims repeat reshape roll squeeze stack tile unstack",
    "argmax argmin count_nonzero nonzero searchsorted where argsort sort "
    "unique_all unique_counts unique_inverse unique_values",
    "cumulative_prod cumulative_sum max mean min prod std sum var all any diff",
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64",
}

# What has no operator yet, and which it is.
MISSING = {
    "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh",
    "atan": "Atan", "atanh": "Atanh", "cos": "Cos", "cosh": "Cosh",
    "imag": "Imag", "nonzero": "NonZero", "sin": "Sin", "sinh": "Sinh",
    "tan": "Tan", "sort": "TopK", "argsort": "TopK", "unique_all": "Unique",
    "unique_counts": "Unique", "unique_inverse": "Unique",
    "unique_values": "Unique"}
MISSING_OF_TWO = {
    "atan2": "Atan2", "nextafter": "NextAfter", "remainder": "Mod",
    "floor_divide": "Mod", "searchsorted": "SearchSorted"}
MISSING_OF_INTEGERS = {
    "bitwise_and": "BitwiseAnd", "bitwise_left_shift": "BitShift",
    "bitwise_or": "BitwiseOr", "bitwise_right_shift": "BitShift",
    "bitwise_xor": "BitwiseXor"}


def has(operator):
    return operator in xp._catalog.OPERATORS


def some(dtype, which=0):
    """A matrix of numbers that a type has, small ones of both signs among
    them."""
    if dtype == "bool":
        return np.array([[True, False, True], [False, False, True]])
    numbers = np.array([[-3, -1, 0], [2, 5, 7]]) + which
    if dtype in UNSIGNED:
        numbers = np.abs(numbers)
    made = numbers.astype(dtype)
    return made + np.array(.5 if which else .25, dtype) * (
        np.array([[1, 0, 0], [1, 2, 0]], dtype)) if dtype in FLOATS else made


def corners(dtype):
    """What floating-point types have beside numbers."""
    return np.array([np.nan, np.inf, -np.inf, 0., -0., 1., -1., .5, -.5, 1.5,
                     2.5, -2.5, .75, -1e4, 2048.5], dtype)


# Function to the types that it is of, and units in the last place.
UNARY = {
    "abs": (NUMBERS, 0), "bitwise_invert": (("bool", *INTEGERS), 0),
    "ceil": (NUMBERS, 0), "exp": (FLOATS, 2), "expm1": (FLOATS, 8),
    "floor": (NUMBERS, 0), "isfinite": (NUMBERS, 0), "isinf": (NUMBERS, 0),
    "isnan": (NUMBERS, 0), "log": (FLOATS, 2), "log10": (FLOATS, 4),
    "log1p": (FLOATS, 8), "log2": (FLOATS, 4), "logical_not": (ALL, 0),
    "negative": (NUMBERS, 0), "positive": (NUMBERS, 0),
    "reciprocal": (FLOATS, 1), "round": (NUMBERS, 0),
    "sign": (NUMBERS, 0), "signbit": (FLOATS, 0), "square": (NUMBERS, 1),
    "sqrt": (FLOATS, 1), "tanh": (FLOATS, 4), "trunc": (NUMBERS, 0)}

BINARY = {
    "add": (NUMBERS, 1), "bitwise_and": (("bool",), 0),
    "bitwise_or": (("bool",), 0), "bitwise_xor": (("bool",), 0),
    "copysign": (FLOATS, 0), "divide": (FLOATS, 1), "equal": (ALL, 0),
    "greater": (NUMBERS, 0), "greater_equal": (NUMBERS, 0),
    "hypot": (FLOATS, 4), "less": (NUMBERS, 0), "less_equal": (NUMBERS, 0),
    "logaddexp": (FLOATS, 8), "logical_and": (ALL, 0), "logical_or": (ALL, 0),
    "logical_xor": (ALL, 0), "maximum": (NUMBERS, 0), "minimum": (NUMBERS, 0),
    "multiply": (NUMBERS, 1), "not_equal": (ALL, 0), "subtract": (NUMBERS, 1)}


class WithArrays(WithServer):
    """One connection for all tests of a class."""

    def setUp(self):
        self.connection = self.connect(label=self.id()[-200:])

    def same(self, mine, numpys, ulps=0, **values):
        """Elements, type and shape, and that these are told at once."""
        numpys = np.asarray(numpys)
        with self.subTest(**values):
            self.assertIsInstance(mine, xp.Tensor)
            self.assertEqual((mine.dtype, mine.shape),
                             (numpys.dtype, numpys.shape))
            found = mine.numpy()
            self.assertEqual((found.dtype, found.shape),
                             (numpys.dtype, numpys.shape))
            if ulps and numpys.dtype.kind == "f":
                eps = np.finfo(numpys.dtype).eps
                # Sums that are nearly 0 have the error of what was added.
                atol = eps if values.get("function") == "logaddexp" else 0
                np.testing.assert_allclose(found, numpys, rtol=ulps * eps,
                                           atol=atol)
            else:
                np.testing.assert_array_equal(found, numpys)


class Elementwise(WithArrays):

    def test_of_one(self):
        for name, (dtypes, ulps) in UNARY.items():
            for dtype in dtypes:
                with np.errstate(all="ignore"):
                    self.same(getattr(xp, name)(xp.asarray(some(dtype))),
                              getattr(np, name)(some(dtype)), ulps,
                              function=name, dtype=dtype)

    def test_of_one_at_the_corners(self):
        for name, (dtypes, ulps) in UNARY.items():
            for dtype in set(dtypes) & set(FLOATS):
                with np.errstate(all="ignore"):
                    given = corners(dtype)
                    if name == "signbit":
                        given = given[1:]
                    mine = getattr(xp, name)(xp.asarray(given))
                    self.same(mine, getattr(np, name)(given), ulps,
                              function=name, dtype=dtype)
                    if name in ("ceil", "floor", "round", "trunc"):
                        np.testing.assert_array_equal(
                            np.signbit(mine.numpy()[1:]),
                            np.signbit(getattr(np, name)(given)[1:]), name)

    def test_of_two(self):
        for name, (dtypes, ulps) in BINARY.items():
            for dtype in dtypes:
                with np.errstate(all="ignore"):
                    x, y = some(dtype), some(dtype, 1)[:1]
                    self.same(getattr(xp, name)(xp.asarray(x), xp.asarray(y)),
                              getattr(np, name)(x, y), ulps, function=name,
                              dtype=dtype)

    def test_of_two_at_the_corners(self):
        for name, (dtypes, ulps) in BINARY.items():
            for dtype in set(dtypes) & set(FLOATS):
                with np.errstate(all="ignore"):
                    x = corners(dtype)
                    if name == "copysign":
                        x = x[1:]
                    y = x[:, None]
                    self.same(getattr(xp, name)(xp.asarray(x), xp.asarray(y)),
                              getattr(np, name)(x, y), ulps, function=name,
                              dtype=dtype)

    def test_small_numbers_keep_their_places(self):
        for dtype in ("float32", "float64"):
            small = np.geomspace(1e-12, 1, 50).astype(dtype)
            small = np.concatenate([small, -small[:-1] / 2])
            for name in ("expm1", "log1p"):
                self.same(getattr(xp, name)(xp.asarray(small)),
                          getattr(np, name)(small), 4, function=name,
                          dtype=dtype)

    def test_powers(self):
        for dtype in ("int8", "int32", "uint8", "uint64", "float32",
                      "float64"):
            x = np.array([[0, 1, 2], [3, 4, 5]], dtype)
            y = np.array([0, 1, 3], dtype)
            self.same(xp.pow(xp.asarray(x), xp.asarray(y)), x ** y, 8,
                      dtype=dtype)

    def test_whole_quotients(self):
        for dtype in INTEGERS:
            x = some(dtype)
            for y in (3, 2) if dtype in UNSIGNED else (3, 2, -2):
                divisor = np.array(y, dtype)
                for name in ("floor_divide", "remainder"):
                    self.same(getattr(xp, name)(xp.asarray(x),
                                                xp.asarray(divisor)),
                              getattr(np, name)(x, divisor), function=name,
                              dtype=dtype, divisor=y)
        with self.assertRaises(xp.errors.InvalidArgument) as raised:
            (xp.asarray([1]) // 0).numpy()
        self.assertEqual(raised.exception.reason, "DIVISION_BY_ZERO")

    def test_clip(self):
        for dtype in NUMBERS:
            x = some(dtype)
            self.same(xp.clip(xp.asarray(x), 1, 4), np.clip(x, 1, 4),
                      dtype=dtype)
        x = some("float32")
        self.same(xp.clip(xp.asarray(x), max=xp.asarray(x[:1])),
                  np.clip(x, None, x[:1]))
        self.same(xp.clip(xp.asarray(x)), x)

    def test_bounds_are_not_narrowed(self):
        x = some("int8")
        for low, high in ((-1000, 1000), (.5, 2.5), (np.int64(-2), None),
                          (None, np.array([300, 1, 2]))):
            self.same(xp.clip(xp.asarray(x), low, high),
                      np.clip(x, low, high), bounds=(low, high))
        with self.assertRaises(OverflowError):
            xp.clip(xp.asarray(x), 300)

    def test_integers_compare_by_their_values(self):
        signed = np.array([-1, 0, 2**53 + 1, 2**63 - 1])
        unsigned = np.array([2**64 - 1, 0, 2**53, 2**63 - 1], np.uint64)
        for name in ("equal", "not_equal", "less", "less_equal", "greater",
                     "greater_equal"):
            mine, numpys = getattr(xp, name), getattr(np, name)
            for x, y in ((signed, unsigned), (unsigned, signed)):
                y = y[:, None]
                self.same(mine(xp.asarray(x), xp.asarray(y)), numpys(x, y),
                          name=name)
                self.same(mine(xp.asarray(x), y), numpys(x, y), name=name)
            small = np.array([0, 3, 255], np.uint8)
            for number in (300, -1, 2**70, 255):
                self.same(mine(xp.asarray(small), number),
                          numpys(small, number), name=name, number=number)
                self.same(mine(number, xp.asarray(small)),
                          numpys(number, small), name=name, number=number)

    def test_powers_of_the_base_have_whole_logarithms(self):
        for name, base, most in (("log10", 10., 300), ("log2", 2., 1023)):
            x = base ** np.arange(-most, most + 1)
            self.same(getattr(xp, name)(xp.asarray(x)), np.round(
                getattr(np, name)(x)), name=name)
            near = np.concatenate([np.nextafter(x, 0), x * 1.001,
                                   1 + np.array([-4, -1, 1, 4]) * 2.0 ** -50])
            self.same(getattr(xp, name)(xp.asarray(near)),
                      getattr(np, name)(near), 4, name=name)
        self.same(xp.log10(xp.asarray([1000, 10**15])), [3., 15.])

    def test_integers_to_negative_powers_are_refused(self):
        x = xp.asarray([1, 2])
        for power in (-1, np.int64(-2), np.array([1, -1])):
            with self.assertRaisesRegex(ValueError, "negative powers"):
                _ = x ** power
        self.same(x ** -1., [1., .5], 1)

    def test_signs_of_zero(self):
        for dtype in FLOATS:
            given = np.array([-0., 0., np.nan, -np.inf], dtype)
            mine = xp.sign(xp.asarray(given))
            self.same(mine, np.sign(given))
            np.testing.assert_array_equal(np.signbit(mine.numpy()),
                                          np.signbit(np.sign(given)))
            given = corners(dtype)
            x, y = given[~np.isnan(given)], given[~np.isnan(given), None]
            for name in ("maximum", "minimum"):
                mine = getattr(xp, name)(xp.asarray(x), xp.asarray(y))
                self.same(mine, getattr(np, name)(x, y), name=name)

    def test_the_least_integers(self):
        for dtype in SIGNED:
            limits = np.iinfo(dtype)
            x = np.array([limits.min, limits.min + 1, limits.max], dtype)
            for divisor in (1, 2, -2, 7, -7, limits.min, limits.max):
                y = np.array(divisor, dtype)
                for name in ("floor_divide", "remainder"):
                    self.same(getattr(xp, name)(xp.asarray(x), xp.asarray(y)),
                              getattr(np, name)(x, y), name=name, dtype=dtype,
                              divisor=divisor)
            with np.errstate(all="ignore"):
                for name in ("abs", "negative", "sign", "square"):
                    self.same(getattr(xp, name)(xp.asarray(x)),
                              getattr(np, name)(x), name=name, dtype=dtype)

    def test_large_numbers_are_whole(self):
        for dtype, bits in (("float16", 10), ("float32", 23),
                            ("float64", 52)):
            at = np.array(2.0 ** bits, dtype)
            x = np.concatenate([
                np.nextafter(at, [0, at, np.inf]).astype(dtype),
                np.array([.5, 1, 2], dtype) * at - np.array(.5, dtype),
                np.finfo(dtype).max * np.array([.5, 1.], dtype)])
            x = np.concatenate([x, -x])
            for name in ("trunc", "floor", "ceil", "round"):
                self.same(getattr(xp, name)(xp.asarray(x)),
                          getattr(np, name)(x), name=name, dtype=dtype)

    def test_truth_values_are_no_numbers(self):
        x = xp.asarray([True, False])
        for function in (xp.negative, xp.abs, xp.sign, xp.floor,
                         lambda x: x + x, lambda x: x < x):
            with self.assertRaisesRegex(TypeError, "truth values"):
                function(x)
        with self.assertRaisesRegex(TypeError, "bitwise_and is not of float"):
            _ = xp.ones(2) & xp.ones(2)


class Operators(WithArrays):

    def test_python_has_words_for_them(self):
        for dtype in ("int16", "uint8", "float32"):
            n, m = some(dtype), np.array([[1, 2, 3]], dtype)
            x, y = xp.asarray(n), xp.asarray(m)
            expected = {
                "+": n + m, "-": n - m, "*": n * m, "/": n / m, "r+": 3 + n,
                "r-": 9 - n, "r*": 3 * n, "array": m + n, "+1": +n,
                "abs": abs(n), "==": n == m, "!=": n != m, "<": n < m,
                "<=": n <= m, ">": n > m, ">=": n >= m}
            found = {
                "+": x + y, "-": x - y, "*": x * y, "/": x / y, "r+": 3 + x,
                "r-": 9 - x, "r*": 3 * x, "array": m + x, "+1": +x,
                "abs": abs(x), "==": x == y, "!=": x != y, "<": x < y,
                "<=": x <= y, ">": x > y, ">=": x >= y}
            if dtype != "float32":
                expected |= {"//": n // m, "%": n % m, "r//": 9 // m,
                             "r%": 9 % m, "~": ~n}
                found |= {"//": x // y, "%": x % y, "r//": 9 // y,
                          "r%": 9 % y, "~": ~x}
            for name, tensor in found.items():
                self.same(tensor, expected[name], 1, dtype=dtype, name=name)
        n = np.array([True, False])
        x = xp.asarray(n)
        self.same(x & True, n & True)
        self.same(True ^ x, True ^ n)
        self.same(False | x, False | n)

    def test_in_place(self):
        n = np.array([2., 3.], np.float32)
        x = xp.asarray(n)
        name, kept = x, x * 1
        for change in ("+= 1", "-= 3", "*= n", "/= 2", "**= 2"):
            names = {"x": x, "n": n}
            exec(f"x {change}", names)  # pylint: disable=exec-used
            self.assertIs(names["x"], x)
        expected = ((n + 1 - 3) * n / 2) ** 2
        self.same(name, expected, 2)
        self.same(kept, n)
        counts = xp.asarray([7, 8])
        counts //= 2
        counts %= 3
        self.same(counts, [0, 1])
        with self.assertRaisesRegex(TypeError, "float64.*int64 .*in place"):
            counts += .5
        with self.assertRaisesRegex(ValueError, "in place"):
            counts += np.ones((3, 2), np.int64)
        x += np.float64(1)
        self.assertEqual(x.dtype, np.float32)

    def test_a_copy_is_one(self):
        x = xp.asarray([1., 2.])
        copies = [xp.asarray(x, copy=True), +x, x[...],
                  xp.astype(x, xp.float64), xp.from_dlpack(x, copy=True)]
        self.assertIs(xp.asarray(x), x)
        self.assertIs(xp.astype(x, xp.float64, copy=False), x)
        x += 1
        for each in copies:
            self.same(each, [1., 2.])

        y = xp.asarray([1.])
        for copied in (copy.copy(y), copy.deepcopy([y])[0]):
            copied += 1
            self.same(copied, [2.])
        self.same(y, [1.])
        with self.assertRaisesRegex(TypeError, "pickle x.numpy"):
            pickle.dumps(y)

    def test_what_changes_nothing_gives_another_tensor(self):
        n = np.array([[1., 2.]])
        for function in (
                lambda x: xp.sum(x, axis=()), lambda x: xp.max(x, axis=()),
                lambda x: xp.mean(x, axis=()), lambda x: xp.min(x, axis=()),
                lambda x: xp.prod(x, axis=0, keepdims=True),
                lambda x: xp.prod(x, axis=()), xp.positive, xp.real, xp.conj,
                lambda x: xp.cumulative_sum(x, axis=0),
                lambda x: xp.cumulative_prod(x, axis=0),
                lambda x: xp.roll(x, 0), lambda x: xp.roll(x, 0, axis=1),
                lambda x: xp.tile(x, (1,)), lambda x: xp.diff(x, n=0),
                lambda x: xp.reshape(x, (1, 2)), lambda x: xp.flip(x, axis=0),
                lambda x: xp.flip(x, axis=()), lambda x: xp.squeeze(x, ()),
                lambda x: xp.permute_dims(x, (0, 1)), xp.clip,
                lambda x: xp.moveaxis(x, 0, 0), lambda x: x[...],
                lambda x: xp.broadcast_to(x, (1, 2)),
                lambda x: xp.broadcast_arrays(x, x)[0],
                lambda x: xp.broadcast_arrays(x, x)[1],
                lambda x: xp.meshgrid(xp.reshape(x, (2,)))[0],
                lambda x: xp.repeat(x, 1, axis=0), lambda x: x[:],
                lambda x: xp.concat([x]), lambda x: x.astype(x.dtype)):
            x = xp.asarray(n)
            made = function(x)
            made += 1
            self.same(x, n)
        x = xp.asarray(3.)
        for function in (xp.sum, xp.max, xp.mean, xp.prod, xp.min):
            made = function(x)
            made += 1
        line = xp.asarray([3.])
        for function in (xp.cumulative_sum, xp.cumulative_prod,
                         lambda x: xp.meshgrid(x)[0]):
            made = function(line)
            made += 1
        self.same(x, 3.)
        self.same(line, [3.])
        taken = xp.asarray([7.])
        line[...] = taken
        taken += 1
        self.same(line, [7.])

    def test_what_another_thread_has_yet_to_send_stays(self):
        x = xp.asarray([1.])
        y = x + 1
        x += 10
        self.same(y, [2.])
        self.same(x, [11.])

    def test_python_reads_single_elements(self):
        x = xp.asarray(np.arange(3, dtype=np.float32))
        self.assertEqual([float(each) for each in x], [0, 1, 2])
        self.assertEqual(complex(x[1]), 1 + 0j)
        self.assertTrue(x[2] > 1)
        self.assertEqual([10, 20, 30][xp.asarray(1)], 20)
        with self.assertRaises(TypeError):
            _ = [1, 2][x[1]]
        with self.assertRaises(ValueError):
            bool(x)


class Types(WithArrays):

    def test_promotion_is_numpys(self):
        for left in ALL:
            for right in ALL:
                with self.subTest(left=left, right=right):
                    self.assertEqual(
                        xp.result_type(getattr(xp, left), getattr(xp, right)),
                        np.result_type(left, right))
                    self.assertEqual(
                        xp.can_cast(getattr(xp, left), getattr(xp, right)),
                        np.can_cast(left, right))
                if "bool" in (left, right):
                    continue
                x, y = some(left), some(right)
                self.same(xp.asarray(x) * xp.asarray(y), x * y, 2, left=left,
                          right=right)

    def test_numbers_of_pythons_have_no_type(self):
        for dtype in NUMBERS:
            self.same(xp.asarray(some(dtype)) + 1, some(dtype) + 1,
                      dtype=dtype)
        for dtype in FLOATS:
            self.same(2.5 * xp.asarray(some(dtype)), 2.5 * some(dtype),
                      dtype=dtype)
        self.assertEqual(xp.result_type(xp.ones(1, dtype=xp.int8), 3), xp.int8)
        with self.assertRaises(OverflowError):
            _ = xp.asarray(some("int8")) + 300

    def test_casts(self):
        for source in ALL:
            for target in ALL:
                x = np.abs(some(source)) if source != "bool" else some(source)
                self.same(xp.astype(xp.asarray(x), target), x.astype(target),
                          source=source, target=target)

    def test_kinds_and_limits(self):
        for dtype in ALL:
            for kind in ("bool", "signed integer", "unsigned integer",
                         "integral", "real floating", "complex floating",
                         "numeric", ("bool", "integral")):
                self.assertEqual(xp.isdtype(getattr(xp, dtype), kind),
                                 np.isdtype(np.dtype(dtype), kind))
        self.assertTrue(xp.isdtype(xp.float32, xp.float32))
        self.assertEqual(xp.finfo(xp.float32).eps, np.finfo("float32").eps)
        self.assertIs(type(xp.finfo(xp.ones(1)).max), float)
        self.assertEqual((xp.iinfo(xp.uint8).bits, xp.iinfo(xp.uint8).max),
                         (8, 255))
        self.assertEqual({xp.int8: 1}[xp.asarray(some("int8")).dtype], 1)


class Creation(WithArrays):

    def test_of_nothing(self):
        for dtype in ALL:
            for name in ("zeros", "ones", "empty"):
                for shape in ((), (0,), 3, (2, 3)):
                    expected = np.ones if name == "ones" else np.zeros
                    self.same(getattr(xp, name)(shape, dtype=dtype),
                              expected(shape, dtype), name=name, dtype=dtype)
            self.same(xp.full((2,), 1, dtype=dtype), np.full(2, 1, dtype))
        self.same(xp.zeros(2), np.zeros(2))
        self.same(xp.full((2, 2), 7), np.full((2, 2), 7))
        self.same(xp.full(2, True), np.full(2, True))
        with self.assertRaises(ValueError):
            xp.zeros((2, -1))

    def test_like_another(self):
        x = some("float32")
        for name in ("zeros_like", "ones_like"):
            self.same(getattr(xp, name)(xp.asarray(x)), getattr(np, name)(x))
            self.same(getattr(xp, name)(xp.asarray(x), dtype=xp.int8),
                      getattr(np, name)(x, np.int8))
        self.same(xp.full_like(xp.asarray(x), 3), np.full_like(x, 3))
        self.assertEqual(xp.empty_like(xp.asarray(x)).shape, x.shape)

    def test_ranges(self):
        self.same(xp.arange(5), np.arange(5))
        self.same(xp.arange(1, 2, .25), np.arange(1, 2, .25))
        self.same(xp.arange(5, 1, -2, dtype=xp.uint8),
                  np.arange(5, 1, -2, np.uint8))
        self.same(xp.linspace(0, 1, 5), np.linspace(0, 1, 5))
        self.same(xp.linspace(0, 1, 4, endpoint=False, dtype=xp.float32),
                  np.linspace(0, 1, 4, False, dtype=np.float32))

    def test_matrices(self):
        for k in (-1, 0, 2):
            self.same(xp.eye(3, 4, k=k), np.eye(3, 4, k))
            for dtype in ("bool", "int8", "float32"):
                x = np.ones((2, 3, 4), dtype)
                self.same(xp.tril(xp.asarray(x), k=k), np.tril(x, k))
                self.same(xp.triu(xp.asarray(x), k=k), np.triu(x, k))
        self.same(xp.eye(2, dtype=xp.int64), np.eye(2, dtype=np.int64))

    def test_grids(self):
        axes = [np.arange(2), np.arange(3.), np.arange(4)]
        for count in (1, 2, 3):
            for indexing in ("xy", "ij"):
                given = axes[:count]
                for mine, numpys in zip(
                        xp.meshgrid(*map(xp.asarray, given),
                                    indexing=indexing),
                        np.meshgrid(*given, indexing=indexing), strict=True):
                    self.same(mine, numpys, count=count, indexing=indexing)

    def test_devices(self):
        cpu = xp.devices()[0]
        self.assertEqual((cpu.name, cpu.is_default), ("cpu", True))
        self.assertTrue(cpu.uuid and cpu.product and cpu.memory_bytes)
        x = xp.ones(2, device=cpu)
        self.assertEqual(x.device, cpu)
        self.assertIs(x.to_device(x.device), x)
        info = xp.__array_namespace_info__()
        self.assertEqual(info.default_device(), cpu)
        self.assertIn(cpu, info.devices())
        with self.assertRaises(NotImplementedError):
            x.to_device("cuda:7")
        with xp.Device("cpu"):
            self.assertEqual(xp.arange(2).device, cpu)
        with xp.Device("cuda:7"), self.assertRaisesRegex(
                xp.errors.NotFound, "cuda:7"):
            xp.asarray([1.]).numpy()


class Exchange(WithArrays):

    def test_numpy_takes_them(self):
        for dtype in ALL:
            x = xp.asarray(some(dtype))
            np.testing.assert_array_equal(np.from_dlpack(x), some(dtype))
            self.same(xp.from_dlpack(some(dtype)), some(dtype))
        self.assertEqual(x.__dlpack_device__(), (1, 0))
        self.assertIs(xp.from_dlpack(x), x)

    def test_what_is_no_copy_for_the_cpu_is_refused(self):
        x = xp.ones(2)
        x.__dlpack__(stream=-1, max_version=(1, 0), dl_device=(1, 0),
                     copy=True)
        for arguments in ({"stream": 0}, {"stream": 1}, {"stream": 7},
                          {"dl_device": (2, 0)}, {"copy": False}):
            with self.subTest(arguments), self.assertRaises(BufferError):
                x.__dlpack__(**arguments)
        with self.assertRaises(ValueError):
            np.asarray(x, copy=False)
        with self.assertRaises(ValueError):
            xp.asarray(np.ones(2), copy=False)
        with self.assertRaises(BufferError):
            xp.from_dlpack(np.ones(2), copy=False)
        with self.assertRaises(ValueError):
            x.to_device("cpu", stream=3)


class Shapes(WithArrays):

    def setUp(self):
        super().setUp()
        self.n = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        self.x = xp.asarray(self.n)

    def test_nothing_is_asked_for_them(self):
        before = self.connection.calls
        y = xp.matmul(xp.flip(self.x), xp.permute_dims(self.x, (0, 2, 1)))
        y = xp.mean(xp.concat([y, y[:1]]), axis=(0, 2), keepdims=True)[0]
        self.assertEqual((y.shape, y.dtype), ((3, 1), np.float32))
        self.assertEqual(self.connection.calls, before)

    def test_they_are_changed(self):
        x, n = self.x, self.n
        for mine, numpys in (
                (xp.reshape(x, (4, -1)), n.reshape(4, -1)),
                (xp.reshape(x, (24,)), n.reshape(24)),
                (xp.reshape(x[:0], (0, 5)), n[:0].reshape(0, 5)),
                (xp.reshape(xp.asarray(1.), ()), np.asarray(1.)),
                (xp.permute_dims(x, (2, 0, -2)), n.transpose(2, 0, 1)),
                (x.mT, n.mT), (x[0].T, n[0].T), (xp.matrix_transpose(x), n.mT),
                (xp.moveaxis(x, 0, -1), np.moveaxis(n, 0, -1)),
                (xp.moveaxis(x, (0, 2), (1, 0)),
                 np.moveaxis(n, (0, 2), (1, 0))),
                (xp.expand_dims(x), n[None]),
                (xp.expand_dims(x, axis=-1), n[..., None]),
                (xp.expand_dims(x, axis=(0, 2)), np.expand_dims(n, (0, 2))),
                (xp.squeeze(x[:, :1, :], 1), n[:, 0]),
                (xp.squeeze(x[:1, :1], (0, 1)), n[0, 0]),
                (xp.broadcast_to(x[:1], (5, 2, 3, 4)),
                 np.broadcast_to(n[:1], (5, 2, 3, 4))),
                (xp.broadcast_arrays(x, x[0])[1],
                 np.broadcast_arrays(n, n[0])[1])):
            self.same(mine, numpys, 0, expected=numpys.shape)

    def test_elements_are_moved(self):
        x, n = self.x, self.n
        for mine, numpys in (
                (xp.flip(x), np.flip(n)), (xp.flip(x, axis=1), np.flip(n, 1)),
                (xp.flip(x, axis=(0, -1)), np.flip(n, (0, -1))),
                (xp.flip(x[:, :0]), n[:, :0]),
                (xp.roll(x, 5), np.roll(n, 5)),
                (xp.roll(x, -1, axis=2), np.roll(n, -1, 2)),
                (xp.roll(x, (1, 2), axis=1), np.roll(n, (1, 2), 1)),
                (xp.roll(x, (1, 2), axis=(0, 1)), np.roll(n, (1, 2), (0, 1))),
                (xp.concat([x, x], axis=1), np.concatenate([n, n], 1)),
                (xp.concat([x, x[0]], axis=None),
                 np.concatenate([n, n[0]], None)),
                (xp.concat([x[0], xp.ones((1, 4), dtype=xp.int64)]),
                 np.concatenate([n[0], np.ones((1, 4), np.int64)])),
                (xp.stack([x, x], axis=-1), np.stack([n, n], -1)),
                (xp.repeat(x, 2), np.repeat(n, 2)),
                (xp.repeat(x, 3, axis=1), np.repeat(n, 3, 1)),
                (xp.repeat(x, xp.asarray([2, 0, 1]), axis=1),
                 np.repeat(n, [2, 0, 1], 1)),
                (xp.tile(x, (2, 1, 3)), np.tile(n, (2, 1, 3))),
                (xp.tile(x, (2,)), np.tile(n, 2)),
                (xp.tile(x[0], (2, 1, 1)), np.tile(n[0], (2, 1, 1))),
                (xp.tile(x, (0, 1, 1)), np.tile(n, (0, 1, 1)))):
            self.same(mine, numpys, 0, expected=numpys.shape)
        for axis in (0, 1, -1):
            for mine, numpys in zip(xp.unstack(x, axis=axis),
                                    np.unstack(n, axis=axis), strict=True):
                self.same(mine, numpys, axis=axis)

    def test_what_does_not_fit_is_refused_at_once(self):
        x = self.x
        for function, error in (
                (lambda: xp.reshape(x, (5, -1)), ValueError),
                (lambda: xp.reshape(x, (4, 6), copy=False), ValueError),
                (lambda: xp.permute_dims(x, (0, 1)), ValueError),
                (lambda: xp.permute_dims(x, (0, 1, 1)), ValueError),
                (lambda: xp.squeeze(x, 1), ValueError),
                (lambda: xp.broadcast_to(x, (3, 4)), ValueError),
                (lambda: xp.concat([x, x[0]]), ValueError),
                (lambda: xp.concat([]), ValueError),
                (lambda: xp.expand_dims(x, axis=4), IndexError),
                (lambda: x.T, ValueError),
                (lambda: xp.diff(x, n=-1), ValueError),
                (lambda: xp.roll(x, (1, 2, 3), axis=(0, 1)), ValueError),
                (lambda: xp.vecdot(x, x, axis=1), ValueError)):
            with self.assertRaises(error):
                function()


class Indexing(WithArrays):

    def setUp(self):
        super().setUp()
        self.n = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
        self.x = xp.asarray(self.n)

    KEYS = (
        1, -1, (1, 2), (1, 2, 3), ..., (..., 0), (0, ...), (), None,
        (None, 1, None), slice(1, 3), slice(None, None, -1), slice(10, 2, -1),
        slice(2, 0), slice(-2, None), (slice(None), slice(None, None, 2)),
        (slice(None), slice(None, None, -2), 0), (..., None, slice(3, 0, -2)),
        (0, None, ..., slice(1)), (np.int64(1), 0))
    PLACES = (
        np.array([2, 0, -1]), np.array([[0, 1], [2, 2]], np.int32),
        (slice(None), np.array([3, 3])), (0, np.array([1, 2])),
        (slice(1, 2), np.array([[1, 0]]), 2), (..., np.array([0, -5])),
        (np.array([0, 1]), np.array([1, -1])),
        (np.array([[0], [1]]), np.array([1, 2]), np.array(4)),
        (np.array([0, 2]), 1), np.zeros(0, np.int64),
        (0, slice(None), np.array([1, 2])), (0, None, np.array([1, 2])),
        (slice(None), np.array([[0, 1]]), slice(None, None, 2)),
        (np.array([0, 1]), slice(None), 0), (np.array([0, 1]), None, 0),
        (slice(None), 0, ..., np.array([1, 2])),
        (slice(None), 0, None, np.array([[1, 2]])),
        (None, slice(None), 0, np.array([1, 2])),
        (1, ..., np.array([0, 3, 1])), (slice(2), np.array([1]), 3))

    def test_as_numpy(self):
        for key in self.KEYS:
            self.same(self.x[key], self.n[key], key=key)

    def test_by_places(self):
        def as_tensors(key):
            if isinstance(key, tuple):
                return tuple(map(as_tensors, key))
            return xp.asarray(key) if isinstance(key, np.ndarray) else key

        for key in self.PLACES:
            self.same(self.x[key], self.n[key], key=key)
            self.same(self.x[as_tensors(key)], self.n[key], key=key)

    def test_assignment(self):
        for key in (k for k in self.KEYS if k is not None and not (
                isinstance(k, tuple) and None in k)):
            x, n = xp.asarray(self.x, copy=True), self.n.copy()
            value = -np.arange(np.size(n[key]), dtype=np.int32).reshape(
                n[key].shape)
            for new in (7, value, xp.asarray(value)):
                x[key] = new
                n[key] = value if isinstance(new, xp.Tensor) else new
                self.same(x, n, key=key)
        self.same(self.x, self.n)
        x, n = xp.asarray(self.x, copy=True), self.n.copy()
        x[x > 30] = 2.9
        n[n > 30] = 2.9
        x[xp.asarray([True, False, True])] = xp.asarray(1)
        n[[True, False, True]] = 1
        self.same(x, n)
        x[x > 20] = [5]
        n[n > 20] = [5]
        x[xp.asarray([False, True, True])] = [[[9]]]
        n[[False, True, True]] = [[[9]]]
        self.same(x, n)

    def test_truth_values_are_for_what_is_there(self):
        for shape, mask in (((3,), (2, 3)), ((1,), (3,)), ((3, 4), (3, 1)),
                            ((3, 4), (4,)), ((3, 4), (1, 4)), ((), (1,))):
            n, where = np.zeros(shape), np.zeros(mask, bool)
            for given in (where, xp.asarray(where)):
                x = xp.asarray(n)
                with self.subTest(shape=shape, mask=mask), \
                        self.assertRaises(IndexError):
                    n[where] = 1
                with self.subTest(shape=shape, mask=mask), \
                        self.assertRaises(IndexError):
                    x[given] = 1
                self.same(x, n)
        x = xp.asarray([1., 2.])
        for new in ([[5.]], xp.asarray([[5.]])):
            with self.assertRaises(TypeError):
                x[xp.asarray([True, False])] = new
        self.same(x, [1., 2.])

    def test_numbers_that_the_type_does_not_have_are_refused(self):
        for dtype, new in (("int8", 300), ("uint8", -1), ("int32", np.nan),
                           ("int32", np.inf), ("int8", [1, 300, 2]),
                           ("int8", 1e10)):
            x, n = xp.zeros(3, dtype=dtype), np.zeros(3, dtype)
            with self.subTest(dtype=dtype, new=new):
                with self.assertRaises((OverflowError, ValueError)) as numpys:
                    n[...] = new
                with self.assertRaises(type(numpys.exception)):
                    x[...] = new
                with self.assertRaises(type(numpys.exception)):
                    x[xp.ones(3, dtype=bool)] = np.ravel(new).tolist()[-2:][0]
                self.same(x, np.zeros(3, dtype))

    def test_places_are_integers(self):
        x = self.x
        mask = np.array([True, False, True])
        for key in ((mask, mask), (mask, 0), (0, np.ones(4, bool)),
                    (np.array([0, 1, 2]), mask),
                    (slice(None), np.ones(4, bool))):
            for keys in (key, tuple(xp.asarray(each) if isinstance(
                    each, np.ndarray) else each for each in key)):
                with self.assertRaisesRegex(NotImplementedError, "NonZero"):
                    _ = x[keys]
                if not has("ScatterND"):
                    with self.assertRaisesRegex(NotImplementedError,
                                                "__setitem__"):
                        x[keys] = 1
        for key in (([.7], [1.2]), ([0], [1.]), [.5], ([0], xp.ones(1))):
            with self.assertRaisesRegex(IndexError, "float64"):
                _ = x[key]
        self.same(x[[], []], self.n[[], []])

    def test_take(self):
        x, n = self.x, self.n
        places = np.array([1, 0, 1])
        for axis in (0, 1, -1):
            self.same(xp.take(x, xp.asarray(places), axis=axis),
                      np.take(n, places, axis))
            order = np.argsort(-n, axis)
            self.same(xp.take_along_axis(x, xp.asarray(order), axis=axis),
                      np.take_along_axis(n, order, axis))
        self.same(xp.take_along_axis(x, xp.asarray([[[1, -1]]])),
                  np.take_along_axis(n, np.array([[[1, -1]]]), -1))
        self.same(xp.take(x[0, 0], xp.asarray(places)), n[0, 0][places])

    def test_what_is_not_there(self):
        for key in (3, -4, (0, 4), (0, 0, 0, 0), (..., ...), 1.5, "a"):
            with self.subTest(key=key), self.assertRaises(IndexError):
                _ = self.x[key]
        for key in (xp.asarray([3]), (xp.asarray([0]), xp.asarray([4])),
                    (xp.asarray([-4]), xp.asarray([0]))):
            with self.assertRaises(xp.errors.InvalidArgument) as raised:
                self.x[key].numpy()
            self.assertEqual(raised.exception.reason, "INDEX_OUT_OF_RANGE")
        if not has("NonZero") and not has("Compress"):
            for key in (self.x > 3, np.array([True, False, True]), True):
                with self.assertRaisesRegex(NotImplementedError, "NonZero"):
                    _ = self.x[key]
        if not has("ScatterND"):
            x = xp.asarray(self.x, copy=True)
            with self.assertRaisesRegex(NotImplementedError, "ScatterND"):
                x[xp.asarray([0])] = 1


class Reductions(WithArrays):

    AXES = (None, 0, -1, (0, 2), (), (0, 1, 2))

    def compare(self, name, x, ulps=4, **options):
        for axis in self.AXES:
            for keepdims in (False, True):
                given = {k: v for k, v in options.items() if k != "ddof"}
                mine = getattr(xp, name)(xp.asarray(x), axis=axis,
                                         keepdims=keepdims, **given)
                theirs = {"ddof": options["correction"]} if (
                    "correction" in options) else given
                with np.errstate(all="ignore"):
                    numpys = getattr(np, name)(x, axis=axis, keepdims=keepdims,
                                               **theirs)
                self.same(mine, numpys, ulps, function=name, dtype=x.dtype,
                          axis=axis, keepdims=keepdims)

    def test_of_all_types(self):
        for dtype in ALL:
            x = np.stack([some(dtype), some(dtype, 1), some(dtype)])
            for name in ("all", "any", "count_nonzero"):
                self.compare(name, x)
            if dtype == "bool":
                continue
            for name in ("sum", "prod", "min", "max"):
                self.compare(name, x, 16)
            if dtype != "float16":
                self.compare("mean", x, 16)

    def test_spread(self):
        generator = np.random.default_rng(1)
        for dtype in ("float16", "float32", "float64"):
            x = generator.normal(size=(3, 4, 5)).astype(dtype)
            for name in ("mean", "var", "std"):
                self.compare(name, x, 64)
            self.compare("var", x, 64, correction=1)
        self.compare("std", generator.integers(0, 9, (2, 3, 4)), 64)

    def test_at_the_corners(self):
        for dtype in FLOATS:
            for some_ in ([np.nan, 1., -1.], [1., np.nan, 2.],
                          [-1., -2., np.nan], [np.inf, -np.inf, 0.],
                          [np.inf, 1., np.inf], [-0., 0., -0.],
                          [0., -0., 0.], [-0., -0., -0.]):
                x = np.array([some_, some_[::-1]], dtype)
                for name in ("max", "min", "argmax", "argmin", "sum"):
                    for axis in (None, 0, 1):
                        with np.errstate(all="ignore"):
                            self.same(
                                getattr(xp, name)(xp.asarray(x), axis=axis),
                                getattr(np, name)(x, axis=axis), name=name,
                                x=some_, axis=axis, dtype=dtype)
            zeros = np.full(3, -0., dtype)
            for name in ("max", "min"):
                found = getattr(xp, name)(xp.asarray(zeros)).numpy()
                self.assertTrue(np.signbit(found), (name, dtype))

    def test_other_types_on_request(self):
        x = some("int8")
        self.same(xp.sum(xp.asarray(x), dtype=xp.float32),
                  np.sum(x, dtype=np.float32))
        self.same(xp.prod(xp.asarray(x), dtype=xp.int16, axis=1),
                  np.prod(x, dtype=np.int16, axis=1))

    def test_of_nothing(self):
        x = np.zeros((0, 3))
        for name in ("sum", "prod", "any", "all"):
            self.same(getattr(xp, name)(xp.asarray(x), axis=0),
                      getattr(np, name)(x, axis=0), name=name)
        for name in ("max", "min", "argmax", "argmin"):
            with self.assertRaises(ValueError):
                getattr(xp, name)(xp.asarray(x), axis=0)
        self.same(xp.max(xp.asarray(x), axis=1), np.zeros(0))

    def test_running(self):
        for dtype in ("int8", "uint16", "float64"):
            x = np.stack([some(dtype), some(dtype, 1), some(dtype)])
            for axis in (0, 1, -1):
                for start in (False, True):
                    self.same(
                        xp.cumulative_sum(xp.asarray(x), axis=axis,
                                          include_initial=start),
                        np.cumulative_sum(x, axis=axis, include_initial=start),
                        8, dtype=dtype, axis=axis)
                self.same(xp.cumulative_prod(xp.asarray(x), axis=axis),
                          np.cumulative_prod(x, axis=axis), 8)
        x = np.arange(37.)
        self.same(xp.cumulative_sum(xp.asarray(x)), np.cumulative_sum(x))
        for n in (0, 1, 2):
            self.same(xp.diff(xp.asarray(x ** 2), n=n), np.diff(x ** 2, n))
        y = some("int32")
        self.same(xp.diff(xp.asarray(y), axis=0, prepend=xp.asarray(y[:1])),
                  np.diff(y, axis=0, prepend=y[:1]))

    def test_places(self):
        for dtype in NUMBERS:
            x = np.stack([some(dtype), some(dtype, 1), some(dtype)])
            for name in ("argmax", "argmin"):
                for axis in (None, 0, 1, -1):
                    for keepdims in (False, True):
                        self.same(getattr(xp, name)(
                            xp.asarray(x), axis=axis, keepdims=keepdims),
                            getattr(np, name)(x, axis=axis,
                                              keepdims=keepdims),
                            function=name, dtype=dtype, axis=axis)
        for dtype in ALL:
            c, x, y = some("bool"), some(dtype), some(dtype)[:1]
            self.same(xp.where(*map(xp.asarray, (c, x, y))),
                      np.where(c, x, y), dtype=dtype)
        self.same(xp.where(xp.asarray(some("bool")), 1, 2.5),
                  np.where(some("bool"), 1, 2.5))


class Products(WithArrays):

    def test_of_matrices(self):
        for dtype in NUMBERS:
            x, y = some(dtype), some(dtype, 1)
            for a, b in ((x, y.T), (x, y[0]), (x[0], y.T), (x[0], y[0]),
                         (np.stack([x, x]), y.T),
                         (np.stack([x, x])[:, None], np.stack([y.T] * 3))):
                self.same(xp.asarray(a) @ xp.asarray(b), a @ b, 4, dtype=dtype)
        self.same(xp.asarray(some("int8")) @ some("float32").T,
                  some("int8") @ some("float32").T, 4)
        with self.assertRaises(ValueError):
            xp.matmul(xp.ones(()), xp.ones(2))

    def test_over_other_axes(self):
        x = np.arange(24.).reshape(2, 3, 4)
        y = np.arange(60.).reshape(3, 4, 5)
        for a, b, axes in ((x, y, 2), (x, y[0], 1), (x, y, 0),
                           (x, y, ((1, 2), (0, 1))), (x, x, ((2,), (-1,)))):
            self.same(xp.tensordot(xp.asarray(a), xp.asarray(b), axes=axes),
                      np.tensordot(a, b, axes), 4, axes=axes)
        with self.assertRaises(ValueError):
            xp.tensordot(xp.asarray(x), xp.asarray(y), axes=1)
        for dtype in ("int8", "float32"):
            a, b = some(dtype), some(dtype, 1)[:1]
            self.same(xp.vecdot(xp.asarray(a), xp.asarray(b)),
                      np.vecdot(a, b), 2)
        self.same(xp.vecdot(xp.asarray(x), xp.asarray(x), axis=-2),
                  np.vecdot(x, x, axis=-2), 2)


class Namespace(WithArrays):

    def test_it_has_every_name(self):
        for name in " ".join(NAMES).split():
            with self.subTest(name):
                self.assertIn(name, dir(xp))
                self.assertIn(name, xp.__all__)
                self.assertIn(name, xp.array_api.__all__)

    def test_a_tensor_says_where_its_functions_are(self):
        x = xp.ones(2)
        self.assertIs(x.__array_namespace__(), xp)
        self.assertIs(x.__array_namespace__(api_version="2024.12"), xp)
        with self.assertRaises(ValueError):
            x.__array_namespace__(api_version="1999.01")

    def test_it_says_what_it_can(self):
        info = xp.__array_namespace_info__()
        self.assertFalse(info.capabilities()["boolean indexing"])
        self.assertEqual(info.default_dtypes()["real floating"], xp.float64)
        self.assertEqual(info.dtypes(kind="real floating"),
                         {"float32": xp.float32, "float64": xp.float64})
        self.assertEqual(set(info.dtypes(kind=("bool", "integral"))),
                         {"bool", *INTEGERS})
        self.assertEqual(info.dtypes(kind="complex floating"), {})
        self.assertEqual(set(info.dtypes()), {*ALL} - {"float16"})

    def test_what_is_missing_is_said_by_name(self):
        one, two = xp.ones(2), xp.asarray([1, 2])
        calls = ([(name, needs, (one,)) for name, needs in MISSING.items()] +
                 [(name, needs, (one, one))
                  for name, needs in MISSING_OF_TWO.items()] +
                 [(name, needs, (two, two))
                  for name, needs in MISSING_OF_INTEGERS.items()])
        for name, needs, arguments in calls:
            if has(needs):
                continue
            with self.subTest(name), self.assertRaises(
                    NotImplementedError) as raised:
                getattr(xp, name)(*arguments)
            said = str(raised.exception)
            self.assertIn(needs, said)
            self.assertIn("weir.remainder" if name == "floor_divide" else
                          f"weir.{name}", said)


def standardize(x):
    """As a library writes it that knows no more than the standard."""
    np_ = x.__array_namespace__()
    spread = np_.std(x, axis=0, keepdims=True)
    spread = np_.where(spread == 0, np_.ones_like(spread), spread)
    return (x - np_.mean(x, axis=0, keepdims=True)) / spread


def gelu(x):
    np_ = x.__array_namespace__()
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)
    return 0.5 * x * (1 + np_.tanh(inner))


def log_softmax(x, axis=-1):
    np_ = x.__array_namespace__()
    x = x - np_.max(x, axis=axis, keepdims=True)
    return x - np_.log(np_.sum(np_.exp(x), axis=axis, keepdims=True))


class Programs(WithArrays):
    """That are written for any array library."""

    def test_they_run_unchanged(self):
        x = np.random.default_rng(3).normal(size=(16, 8)).astype(np.float32)
        for program in (standardize, gelu, log_softmax):
            with self.subTest(program.__name__):
                np.testing.assert_allclose(program(xp.asarray(x)).numpy(),
                                           program(x), rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    skipping.main()
