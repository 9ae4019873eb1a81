#!/usr/bin/env python3
"""Tensors on a server as a program uses them: operators, results, errors."""

import asyncio
import gc
import inspect
import unittest
import warnings

from spaces_server import WithServer
import numpy as np
import skipping
import weir
from weir.errors import InvalidArgument

def line():
    """The caller's, as call sites have it."""
    frame = inspect.currentframe().f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class WithTensor(WithServer):

    def setUp(self):
        self.connection = self.connect(label=self.id())
        self.numbers = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
        self.x = weir.asarray(self.numbers)


class Operators(WithTensor):

    def same(self, tensor, expected):
        expected = np.asarray(expected)
        self.assertEqual(tensor.dtype, expected.dtype)
        np.testing.assert_array_equal(tensor.numpy(), expected)
        self.assertEqual(tensor.shape, expected.shape)

    def test_they_are_numpys(self):
        x, n = self.x, self.numbers
        m = np.array([[2, -1, 4]], np.float32)
        y = weir.asarray(m)
        for mine, numpys in (
                (x + y, n + m), (x - y, n - m), (x * y, n * m), (x / y, n / m),
                (x + 1, n + 1), (1 - x, 1 - n), (2 * x, 2 * n), (2 / y, 2 / m),
                (x ** 2, n ** 2), (x + m, n + m), (m + x, m + n),
                (x < y, n < m), (x <= 0, n <= 0), (x > y, n > m),
                (x >= 0, n >= 0), (x == 0, n == 0), (x != 0, n != 0),
                (-x, -n), (+x, +n), (abs(x), abs(n)),
                ((x < 0) & (x > -2), (n < 0) & (n > -2)),
                ((x < -2) | (x > 1), (n < -2) | (n > 1)), (~(x < 0), ~(n < 0)),
                (x @ y.connection.tensor(n.T), n @ n.T),
                (n @ weir.asarray(n.T), n @ n.T)):
            self.same(mine, numpys)

    def test_nan_compares_as_numpys(self):
        n = np.array([np.nan, 1], np.float32)
        x = weir.asarray(n)
        for mine, numpys in ((x <= 1, n <= 1), (x >= 1, n >= 1),
                             (x == x, n == n), (x != x, n != n)):
            self.same(mine, numpys)

    def test_types_are_promoted_as_numpys(self):
        for left, right in (("float32", "float64"), ("int8", "int32"),
                            ("int32", "float64"), ("uint8", "int16"),
                            ("float16", "float32")):
            a, b = np.array([1, 2], left), np.array([3, 4], right)
            with self.subTest(left=left, right=right):
                self.same(weir.asarray(a) + weir.asarray(b), a + b)
        integers = np.array([1, 2, -7], np.int32)
        self.same(weir.asarray(integers) / 2, integers / 2)
        self.same(weir.asarray(integers) * 2, integers * 2)
        self.same(weir.asarray(integers) + 1.5, integers + 1.5)

    def test_elements_arrive_as_they_are(self):
        for dtype in ("bool", "int8", "uint16", "int64", "uint64", "float16",
                      "float64", ">i4"):
            array = np.array([[1, 0], [1, 1]], dtype)
            with self.subTest(dtype=dtype):
                self.same(weir.asarray(array), array.astype(
                    array.dtype.newbyteorder("=")))
        self.same(weir.asarray(self.numbers.T), self.numbers.T)
        self.same(weir.asarray(np.float32(7)), np.float32(7))
        self.same(weir.asarray(np.zeros((0, 3))), np.zeros((0, 3)))
        with self.assertRaisesRegex(TypeError, "complex64"):
            weir.asarray(np.zeros(2, np.complex64))

    def test_an_array_may_change_once_it_was_given(self):
        self.numbers[:] = 0
        np.testing.assert_array_equal(
            self.x.numpy().ravel(), [-3, -2, -1, 0, 1, 2])

    def test_python_takes_what_it_knows(self):
        one = weir.asarray(2.5)
        self.assertEqual(float(one), 2.5)
        self.assertEqual(int(one), 2)
        self.assertEqual(one.item(), 2.5)
        self.assertTrue(one > 2)
        self.assertEqual(len(self.x), 2)
        self.assertEqual(np.asarray(self.x).sum(), -3)
        with self.assertRaises(TypeError):
            hash(self.x)

    def test_functions_have_the_catalogs_arguments(self):
        ops, n = weir.ops, self.numbers
        self.same(ops.relu(self.x), np.maximum(n, 0))
        self.same(ops.reduce_sum(self.x, [1], keepdims=0), n.sum(1))
        self.same(ops.transpose(self.x, perm=[1, 0]), n.T)
        self.same(ops.concat(self.x, n, axis=0), np.concatenate([n, n]))
        self.same(ops.cast(self.x, to="int8"), n.astype(np.int8))
        self.same(ops.clip(self.x, None, 1.0), np.minimum(n, 1))
        self.same(ops.constant_of_shape([2, 1], value=np.array([7])),
                  np.full((2, 1), 7))
        parts = ops.split(self.x, axis=1, num_outputs=3, outputs=3)
        for part, column in zip(parts, np.split(n, 3, 1), strict=True):
            self.same(part, column)
        picture = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
        most, where = ops.max_pool(picture, kernel_shape=[4, 4], outputs=2)
        self.assertEqual((most.item(), where.item()), (15, 15))
        self.assertEqual(
            ops.max_pool(picture, kernel_shape=[4, 4]).item(), 15)
        with self.assertRaises(ValueError):
            ops.max_pool(picture, kernel_shape=[4, 4], outputs=3)

    def test_a_reshape_is_known_before_it_ran(self):
        shape = weir.ops.reshape(self.x, [3, 2]).shape
        self.assertEqual(shape, (3, 2))

    def test_a_model_is_evaluated(self):
        image = weir.asarray(np.zeros((2, 1, 8, 8), np.float32))
        model = weir.Model("digits")
        arrays = self.connection.evaluate(model, {"image": image})
        kept = self.connection.evaluate(model, {"image": image},
                                        outputs=list(arrays))
        for name, array in arrays.items():
            np.testing.assert_array_equal(kept[name].numpy(), array)
        self.assertEqual(arrays["digit"].shape, (2,))
        with self.assertRaises(weir.errors.NotFound) as raised:
            self.connection.evaluate(weir.Model("letters"), {"image": image})
        self.assertEqual(raised.exception.reason, "MODEL_NOT_FOUND")


class Messages(WithTensor):

    def test_a_thousand_operators_are_a_handful_of_messages(self):
        before = self.connection.calls
        y = self.x
        for _ in range(1000):
            y = y + 1
        result = y.numpy()
        np.testing.assert_array_equal(result, self.numbers + 1000)
        self.assertLessEqual(self.connection.calls - before, 5)

    def test_looking_sends_nothing(self):
        before = self.connection.calls
        y, z = self.x * 2, weir.ops.relu(self.x)
        self.assertEqual(
            repr(y), "<weir.Tensor float32 (2, 3) on cpu, not sent yet>")
        self.assertEqual(
            repr(z), "<weir.Tensor float32 shape unknown on cpu, not sent yet>")
        self.assertEqual(y.shape, (2, 3))
        self.assertEqual((y > 0).dtype, bool)
        self.assertEqual(self.x.shape, (2, 3))
        self.assertEqual(y.device, weir.Device("cpu"))
        self.assertEqual(self.connection.calls, before)
        z.evaluate()
        self.assertEqual(z.shape, (2, 3))
        self.assertEqual(repr(z), "<weir.Tensor float32 (2, 3) on cpu, ready>")

    def test_asking_for_a_shape_waits_for_no_result(self):
        gate = weir.Timeline()
        held = weir.ops.relu(self.x, after=[gate.at(1)])
        self.assertEqual((held.shape, held.ndim, held.size, held.nbytes),
                         ((2, 3), 2, 6, 24))
        self.assertNotIn("ready", repr(held))
        gate.signal(1)
        self.assertEqual(held.evaluate().shape, (2, 3))

    def test_large_arrays_are_not_kept_waiting(self):
        self.connection.flush()
        before = self.connection.calls
        held = [weir.asarray(np.zeros(1 << 17)) for _ in range(4)]
        self.assertEqual(self.connection.calls - before, 4)
        del held

    def test_what_nobody_refers_to_is_freed(self):
        y = self.x
        for _ in range(1000):
            y = y * 1
        y.evaluate()
        gc.collect()
        self.assertEqual(self.connection.space().held.tensors, 2)
        del y
        self.x = None
        gc.collect()
        self.assertEqual(self.connection.space().held.tensors, 0)

    def test_more_works_than_a_space_holds(self):
        small = self.connect(quota=weir.Amounts(works=8))
        y = small.tensor(self.numbers)
        for _ in range(100):
            y = y + 1
        np.testing.assert_array_equal(y.numpy(), self.numbers + 100)


class Errors(WithTensor):

    def test_a_work_that_fails_says_where_it_was_called(self):
        site, picked = line(), weir.ops.gather(self.x, [7])
        later = (picked + 1) * 2
        for tensor in (picked, later, later):
            with self.assertRaises(InvalidArgument) as raised:
                tensor.numpy()
            error = raised.exception
            self.assertIn(site, str(error))
            self.assertEqual(error.reason, "INDEX_OUT_OF_RANGE")
            self.assertEqual(weir.errors.sync_report_pb2.WorkState.Name(
                error.report.state), "WORK_STATE_ERROR")
        self.assertIsInstance(error, ValueError)
        np.testing.assert_array_equal((self.x + 1).numpy(), self.numbers + 1)

    def test_one_that_is_refused_does_so_when_it_is_read(self):
        site, product = line(), self.x @ self.x
        later = product + 1
        for tensor in (later, product):
            with self.assertRaises(InvalidArgument) as raised:
                tensor.numpy()
            self.assertIn(site, str(raised.exception))
            self.assertIn("MatMul", str(raised.exception))
        self.assertIn("failed: INVALID_ARGUMENT", repr(product))
        with self.assertRaises(InvalidArgument):
            _ = product.shape

    def test_what_nobody_read_is_told_at_the_end(self):
        connection = self.connect()
        x = connection.tensor(self.numbers)
        with weir.EvalContext():
            for operator in (weir.ops.mat_mul, weir.ops.gather):
                operator(x, x if operator is weir.ops.mat_mul else [7])
            (x + 1).evaluate()
        with self.assertWarnsRegex(RuntimeWarning, "2 operations.*MatMul"):
            connection.close()

    def test_what_was_read_is_not_told_again(self):
        connection = self.connect()
        x = connection.tensor(self.numbers)
        with self.assertRaises(InvalidArgument):
            ((x @ x) + 1).numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            connection.close()

    def test_a_deferred_chain_runs_when_it_is_read(self):
        with weir.EvalContext(weir.EvalMode.DEFERRED):
            y = self.x
            for _ in range(20):
                y = y + 1
            np.testing.assert_allclose(y.numpy(), self.numbers + 20)

    def test_a_deferred_operation_needs_a_context(self):
        with weir.EvalMode.DEFERRED:
            y = self.x + 1
        with self.assertRaisesRegex(InvalidArgument, "context"):
            y.numpy()

    def test_what_is_not_there_is_refused_by_name(self):
        for name in ("Stream", "watch"):
            with self.assertRaisesRegex(AttributeError, name):
                getattr(weir, name)
        with self.assertRaisesRegex(AttributeError, "spectrogram"):
            weir.ops.spectrogram(self.x)

    def test_an_operand_of_another_connection_is_refused(self):
        other = self.connect().tensor(self.numbers)
        with self.assertRaisesRegex(ValueError, "different connections"):
            _ = self.x + other

    def test_numbers_of_another_connection_are_not_taken_for_ours(self):
        other = self.connect()
        image = other.tensor(np.zeros((2, 1, 8, 8), np.float32))
        point = weir.Timeline(connection=other).at(1)
        arrays = {"image": np.zeros((2, 1, 8, 8), np.float32)}
        model, mine = weir.Model("digits"), self.connection
        for evaluate in (
                lambda: mine.evaluate(model, {"image": image}),
                lambda: mine.evaluate(model, {"image": image},
                                      outputs=["digit"]),
                lambda: asyncio.run(mine.aevaluate(model, {"image": image})),
                lambda: mine.evaluate(model, arrays, after=[point]),
                lambda: mine.evaluate(model, arrays, signal=[point]),
                lambda: mine.evaluate(model, arrays, outputs=["digit"],
                                      after=[point]),
                lambda: weir.ops.relu(self.x, after=[point]),
                lambda: weir.ops.relu(self.x, signal=[point])):
            with self.assertRaisesRegex(ValueError, "another connection"):
                evaluate()

    def test_a_block_says_where_a_model_is_evaluated(self):
        arrays = {"image": np.zeros((2, 1, 8, 8), np.float32)}
        for outputs in ((), ("digit",)):
            with weir.Device("cuda:99"), self.assertRaises(
                    weir.errors.NotFound):
                made = self.connection.evaluate(weir.Model("digits"), arrays,
                                                outputs=outputs)
                made["digit"].numpy()


class Constants(WithTensor):
    """What functions are put together of goes where their operands are."""

    def results(self, x, places):
        """Of functions that bring constants."""
        changed = weir.asarray(x, copy=True)
        changed[0] = 5
        masked = weir.asarray(x, copy=True)
        masked[np.array([True, False])] = 7.
        whole = weir.astype(x, weir.int64)
        weir.random.set_seed(4)
        return [
            whole // 2, whole % 2, 7 // (whole * 0 + 2), changed, masked,
            weir.tril(x), weir.triu(x), x + weir.zeros_like(x),
            x + weir.ones_like(x), x * weir.full_like(x, 3),
            weir.cumulative_sum(x, axis=0, include_initial=True),
            weir.copysign(x, -1.), weir.copysign(-2., x), weir.hypot(x, 1.),
            weir.logaddexp(1., x), weir.signbit(x), weir.trunc(x / 2),
            x[np.array([0, 1]), np.array([0, 2])],
            x[np.array([0, 1]), places], x[0][places],
            weir.take_along_axis(x, weir.astype(x * 0, weir.int64), axis=1),
            weir.prod(x[:0], axis=0), weir.diff(x, prepend=np.ones(
                (2, 1), np.float32)), weir.vecdot(x, np.ones(3, np.float32)),
            weir.clip(x, 0, 1),
            weir.random.choice(x, shape=(3,)), weir.round(x / 2),
            weir.log2(weir.abs(x) + 1), weir.var(x), weir.where(
                x > 0, 1., 0.), weir.eye(2), weir.meshgrid(x[0])[0]]

    def test_on_any_open_connection(self):
        places = np.array([1, 2])
        expected = [each.numpy() for each in self.results(
            self.x, weir.asarray(places))]
        mine_places = weir.asarray(places)
        other = self.connect()
        self.assertIs(weir.current_connection(), other)
        for block in (weir.EvalMode.EAGER, weir.EvalContext(connection=other)):
            with block:
                found = self.results(self.x, mine_places)
            for place, (mine, wanted) in enumerate(zip(found, expected,
                                                       strict=True)):
                np.testing.assert_array_equal(mine.numpy(), wanted,
                                              str(place))

    def test_on_any_device(self):
        places = weir.asarray(np.array([1, 2]))
        expected = [each.numpy() for each in self.results(self.x, places)]
        with weir.Device("cuda:99"):
            found = self.results(self.x, places)
        for place, (mine, wanted) in enumerate(zip(found, expected,
                                                   strict=True)):
            if place == len(found) - 2:  # eye, which has no operand
                with self.assertRaises(weir.errors.NotFound):
                    mine.numpy()
                continue
            np.testing.assert_array_equal(mine.numpy(), wanted, str(place))


if __name__ == "__main__":
    skipping.main()
