#!/usr/bin/env python3
"""Ragged batches: what is asked of one is asked of each sample."""

import asyncio
import concurrent.futures
import time

from spaces_server import WithServer
import numpy as np
import skipping
import weir

SAMPLES = [np.arange(6, dtype=np.float32).reshape(2, 3),
           np.ones((4, 3), np.float32), np.zeros((1, 3), np.float32)]


class Batches(WithServer):

    def setUp(self):
        self.connection = self.connect()
        self.batch = weir.as_batch(SAMPLES, layout="HW")

    def same(self, batch, arrays):
        self.assertIsInstance(batch, weir.Batch)
        self.assertEqual(len(batch), len(arrays))
        for mine, expected in zip(batch.numpy(), arrays, strict=True):
            self.assertEqual(mine.dtype, np.asarray(expected).dtype)
            np.testing.assert_array_equal(mine, expected)

    def test_what_it_is(self):
        batch = self.batch
        self.assertEqual(batch.shape, [(2, 3), (4, 3), (1, 3)])
        self.assertEqual((batch.batch_size, batch.ndim, batch.dtype,
                          batch.device, batch.layout),
                         (3, 2, np.float32, weir.Device("cpu"), "HW"))
        self.same(batch, SAMPLES)
        self.assertIs(weir.as_batch(batch), batch)
        empty = weir.as_batch([])
        self.assertEqual((len(empty), empty.shape), (0, []))
        with self.assertRaisesRegex(ValueError, "no samples"):
            _ = empty.dtype

    def test_looking_sends_nothing(self):
        before = self.connection.calls
        self.assertEqual(
            repr(self.batch * 2),
            "<weir.Batch of 3 HW: float32 (2, 3) on cpu, not sent yet; "
            "float32 (4, 3) on cpu, not sent yet; "
            "float32 (1, 3) on cpu, not sent yet>")
        self.assertEqual(repr(weir.as_batch([])), "<weir.Batch of 0: nothing>")
        self.assertIn("; ...>", repr(weir.as_batch(np.zeros((9, 1)))))
        self.assertEqual(self.connection.calls, before)

    def test_of_what_it_is_made(self):
        stacked = np.arange(12).reshape(2, 2, 3)
        self.same(weir.as_batch(stacked), list(stacked))
        self.same(weir.as_batch(weir.asarray(stacked)), list(stacked))
        self.same(weir.as_batch([weir.ones(2), np.zeros(3)]),
                  [np.ones(2), np.zeros(3)])
        self.same(weir.as_batch([1, 2.5], weir.float32), np.float32([1, 2.5]))

        class Exporter:
            """Has its elements by DLPack alone."""

            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        self.same(weir.as_batch(map(Exporter, SAMPLES)), SAMPLES)
        self.same(weir.as_batch(Exporter(stacked)), list(stacked))

    def test_samples_have_one_type_and_rank(self):
        with self.assertRaisesRegex(ValueError, "one dtype.*float32, float64"):
            weir.as_batch([np.zeros(1, np.float32), np.zeros(1)])
        with self.assertRaisesRegex(ValueError, "axes.*1, 2"):
            weir.as_batch([np.zeros(1), np.zeros((1, 1))])

    def test_samples_are_picked(self):
        batch = self.batch
        np.testing.assert_array_equal(batch.tensors[1].numpy(), SAMPLES[1])
        np.testing.assert_array_equal(batch.select(-1).numpy(), SAMPLES[-1])
        self.same(batch.tensors[::2], SAMPLES[::2])
        self.same(batch.select([2, 0]), [SAMPLES[2], SAMPLES[0]])
        self.assertEqual(batch.tensors[1:].layout, "HW")
        self.assertEqual(len(batch.tensors), 3)
        with self.assertRaises(IndexError):
            _ = batch.tensors[3]
        with self.assertRaisesRegex(IndexError, "truth values"):
            batch.select([True, False, True])
        for mine, sample in zip(batch, SAMPLES, strict=True):
            np.testing.assert_array_equal(mine.numpy(), sample)

    def test_a_layout_may_be_told_later(self):
        self.assertEqual(weir.as_batch(self.batch, layout="WH").layout, "WH")
        self.assertIs(weir.as_batch(self.batch, layout="HW"), self.batch)
        self.assertEqual(self.batch.layout, "HW")

    def test_functions_of_tensors_say_how_they_are_of_batches(self):
        with self.assertRaisesRegex(TypeError, r"batch\.map\(weir\.sqrt\)"):
            weir.sqrt(self.batch)

    def test_a_timeout_is_that_of_all_samples(self):
        seconds = 0.5
        for read in (lambda batch: batch.evaluate(seconds),
                     lambda batch: batch.numpy(seconds),
                     lambda batch: asyncio.run(batch.aevaluate(seconds)),
                     lambda batch: asyncio.run(batch.anumpy(seconds))):
            gate = weir.Timeline()
            batch = weir.Batch(
                weir.ops.relu(np.ones(2, np.float32), after=[gate.at(n)])
                for n in (1, 2, 3))
            self.connection.flush()

            def open_slowly(gate=gate):
                for n in (1, 2, 3):
                    time.sleep(seconds * .6)
                    gate.signal(n)

            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                opened = pool.submit(open_slowly)
                with self.assertRaises(weir.errors.DeadlineExceeded):
                    read(batch)
                opened.result()

    def test_samples_are_cut(self):
        self.same(self.batch.slice[:1, ::-1],
                  [each[:1, ::-1] for each in SAMPLES])
        starts = [1, 3, 0]
        self.same(self.batch.slice[weir.as_batch(starts):, 1:],
                  [each[start:, 1:] for each, start in
                   zip(SAMPLES, starts, strict=True)])
        self.same(self.batch.slice[..., weir.as_batch([2, 1, 0])],
                  [each[..., at] for each, at in
                   zip(SAMPLES, (2, 1, 0), strict=True)])

    def test_operators_go_sample_by_sample(self):
        batch, shift = self.batch, np.array([[1, 2, 3]], np.float32)
        each = weir.as_batch([np.float32(1), np.float32(2), np.float32(3)])
        for mine, numpys in (
                (batch + 1, [s + 1 for s in SAMPLES]),
                (2 * batch, [2 * s for s in SAMPLES]),
                (1 - batch, [1 - s for s in SAMPLES]),
                (batch + weir.asarray(shift), [s + shift for s in SAMPLES]),
                (batch + shift, [s + shift for s in SAMPLES]),
                (shift - batch, [shift - s for s in SAMPLES]),
                (batch * each, [s * np.float32(n) for s, n in
                                zip(SAMPLES, (1, 2, 3), strict=True)]),
                (weir.asarray(shift) * batch, [shift * s for s in SAMPLES]),
                (batch @ shift.T, [s @ shift.T for s in SAMPLES]),
                (batch > 1, [s > 1 for s in SAMPLES]),
                ((batch > 1) & (batch < 4),
                 [(s > 1) & (s < 4) for s in SAMPLES]),
                (-batch, [-s for s in SAMPLES]),
                (abs(-batch), SAMPLES), (~(batch > 1),
                                         [~(s > 1) for s in SAMPLES]),
                (batch.map(weir.sum, axis=0), [s.sum(0) for s in SAMPLES]),
                (batch.map(weir.maximum, each),
                 [np.maximum(s, np.float32(n)) for s, n in
                  zip(SAMPLES, (1, 2, 3), strict=True)])):
            self.same(mine, numpys)
        with self.assertRaisesRegex(ValueError, "batch of 2 beside.* 3"):
            _ = batch + weir.as_batch([1., 2.])

    def test_functions_of_the_catalog_take_them(self):
        pictures = [np.random.default_rng(seed).random((h, w, 3), np.float32)
                    for seed, (h, w) in enumerate(((4, 6), (8, 5), (3, 3)))]
        batch = weir.as_batch(pictures, layout="HWC")
        turned = weir.as_batch([True, False, True])
        self.same(weir.ops.flip(batch, turned), [
            each[:, ::-1] if turn else each
            for each, turn in zip(pictures, (1, 0, 1), strict=True)])
        widths = [2., 4., 3.]
        small = weir.ops.resize(batch, resize_x=weir.as_batch(widths),
                                resize_y=2.0).evaluate()
        self.assertEqual(small.shape, [(2, 2, 3), (2, 4, 3), (2, 3, 3)])
        halves = weir.ops.split(batch, axis=2, num_outputs=3, outputs=3)
        self.same(halves[1], [each[..., 1:2] for each in pictures])
        sums = weir.ops.reduce_sum(batch, [0, 1], keepdims=0)
        np.testing.assert_allclose(sums.as_tensor().numpy(),
                                   [each.sum((0, 1)) for each in pictures],
                                   rtol=1e-6)
        with self.assertRaisesRegex(ValueError, "signal"):
            weir.ops.relu(batch, signal=[weir.Timeline().at(1)])
        self.assertEqual(len(weir.ops.relu(weir.as_batch([]))), 0)

    def test_a_batch_of_equal_shapes_is_a_tensor(self):
        equal = weir.as_batch(np.arange(6.).reshape(2, 3))
        np.testing.assert_array_equal(equal.as_tensor().numpy(),
                                      np.arange(6.).reshape(2, 3))
        with self.assertRaisesRegex(ValueError, "no tensor"):
            self.batch.as_tensor()

    def test_one_that_fails_fails_alone(self):
        picked = weir.ops.gather(weir.as_batch([[1., 2.], [3.]]), [1])
        self.assertEqual(picked.tensors[0].item(), 2)
        with self.assertRaises(weir.errors.InvalidArgument):
            picked.evaluate()


if __name__ == "__main__":
    skipping.main()
