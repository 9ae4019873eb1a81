#!/usr/bin/env python3
"""Generators of random numbers: the same for a seed, whoever draws."""

import asyncio
import concurrent.futures
import os
import pickle

from spaces_server import WithServer
import numpy as np
import skipping
import weir
from weir.random import RNG

SECONDS = 60


def draw(rng, times=3):
    return [weir.random.uniform(shape=4, rng=rng).numpy().tolist()
            for _ in range(times)]


class Generators(WithServer):

    def setUp(self):
        self.connect(send_after=0.001)

    def test_a_seed_says_what_comes(self):
        self.assertEqual(draw(RNG(7)), draw(RNG(7)))
        self.assertNotEqual(draw(RNG(7)), draw(RNG(8)))
        self.assertNotEqual(draw(RNG()), draw(RNG()))
        once, again, other = draw(RNG(7))
        self.assertNotEqual(once, again)
        self.assertNotEqual(again, other)
        # These are what they always were.
        self.assertEqual([RNG(0).draw(), RNG(7).draw()],
                         [0xE220A8397B1DCDAF, 0x63CBE1E459320DD7])

    def test_wherever_it_is_drawn(self):
        expected = draw(RNG(7))
        with weir.EvalContext(rng_seed=99):
            self.assertEqual(draw(RNG(7)), expected)
        with weir.EvalMode.SYNC_FULL:
            self.assertEqual(draw(RNG(7)), expected)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for found in pool.map(draw, [RNG(7) for _ in range(16)]):
                self.assertEqual(found, expected)

    def test_threads_that_share_one_share_its_draws(self):
        alone = RNG(3)
        expected = {alone.draw() for _ in range(4000)}
        shared = RNG(3)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            drawn = pool.map(lambda _: [shared.draw() for _ in range(1000)],
                             range(4))
        self.assertEqual({each for some in drawn for each in some}, expected)
        self.assertEqual(len(expected), 4000)

    def test_it_goes_on_from_a_state(self):
        rng = RNG(5)
        draw(rng)
        state = pickle.loads(pickle.dumps(rng.get_state()))
        expected = draw(rng)
        other = RNG()
        other.set_state(state)
        self.assertEqual(draw(other), expected)
        self.assertEqual(draw(rng.clone()), draw(RNG(5)))
        for state in ("", "weir.RNG/2 5 3", "weir.RNG/1 5", "weir.RNG/1 a 1",
                      "weir.RNG/1 5 -1", f"weir.RNG/1 {1 << 64} 0"):
            with self.assertRaisesRegex(ValueError, "RNG/1"):
                rng.set_state(state)
        self.assertEqual(repr(RNG(5)),
                         "<weir.random.RNG of seed 5, 0 drawn>")

    def test_each_thread_has_a_default_of_its_own(self):
        weir.random.set_seed(7)
        first = draw(None)
        weir.random.set_seed(7)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            self.assertNotEqual(pool.submit(draw, None).result(SECONDS), first)
        self.assertEqual(draw(None), first)
        self.assertEqual(first, draw(RNG(7)))

    def test_each_task_has_one_that_its_maker_seeds(self):
        async def work():
            mine = weir.random.default_rng()
            await asyncio.sleep(0)
            self.assertIs(weir.random.default_rng(), mine)
            return mine.draw()

        async def both():
            weir.random.set_seed(7)
            return await asyncio.gather(work(), work())

        one, other = asyncio.run(both())
        self.assertNotEqual(one, other)
        self.assertEqual(asyncio.run(both()), [one, other])


class Distributions(WithServer):

    COUNT = 40000

    def setUp(self):
        self.connect()
        self.rng = RNG(11)

    def test_uniform(self):
        for dtype in ("float32", "float64", "float16"):
            drawn = weir.random.uniform(range=(-2, 3), shape=self.COUNT,
                                        dtype=dtype, rng=self.rng)
            self.assertEqual((drawn.dtype, drawn.shape),
                             (np.dtype(dtype), (self.COUNT,)))
            found = drawn.numpy().astype(np.float64)
            self.assertGreaterEqual(found.min(), -2)
            self.assertLessEqual(found.max(), 3)
            self.assertAlmostEqual(found.mean(), 0.5, delta=0.05)
        self.assertEqual(weir.random.uniform().shape, ())
        self.assertEqual(weir.random.uniform(shape=(2, 0)).numpy().shape,
                         (2, 0))

    def test_whole_numbers(self):
        drawn = weir.random.uniform(range=(-2, 2), shape=(self.COUNT,),
                                    dtype=np.int8, rng=self.rng)
        values, counts = np.unique(drawn.numpy(), return_counts=True)
        self.assertEqual(values.tolist(), [-2, -1, 0, 1])
        self.assertLess(np.ptp(counts) / self.COUNT, 0.03)
        with self.assertRaisesRegex(ValueError, "whole numbers"):
            weir.random.uniform(range=(0, 2**25), dtype=np.int64)
        with self.assertRaisesRegex(TypeError, "coin_flip"):
            weir.random.uniform(dtype=bool)

    def test_whole_numbers_far_from_zero(self):
        for dtype, first in (("int64", 10**9), ("int64", -10**15),
                             ("uint64", 2**64 - 100), ("int32", -2**31),
                             ("int8", -50), ("uint8", 156)):
            drawn = weir.random.uniform(range=(first, first + 100),
                                        shape=self.COUNT, dtype=dtype,
                                        rng=self.rng)
            self.assertEqual(drawn.dtype, np.dtype(dtype))
            self.assertEqual(np.unique(drawn.numpy()).tolist(),
                             list(range(first, first + 100)))
        few = weir.random.uniform(range=(.5, 3.5), shape=self.COUNT,
                                  dtype=np.int16, rng=self.rng)
        self.assertEqual(np.unique(few.numpy()).tolist(), [1, 2, 3])
        most = weir.random.uniform(range=(0, 12_000_001), shape=1 << 20,
                                   dtype=np.int32, rng=self.rng).numpy()
        self.assertLess(most.max(), 12_000_001)

    def test_ranges_beyond_the_type_are_refused(self):
        for dtype, bounds in (("int8", (0, 300)), ("uint8", (-1, 3)),
                              ("uint64", (2**64 - 1, 2**64 + 1)),
                              ("float16", (0, 1e5)), ("float32", (0, 1e39)),
                              ("float64", (0, 1e39))):
            with self.subTest(dtype=dtype), self.assertRaisesRegex(
                    ValueError, "beyond"):
                weir.random.uniform(range=bounds, dtype=dtype)
        with self.assertRaisesRegex(ValueError, "no whole numbers"):
            weir.random.uniform(range=(.2, .8), dtype=np.int8)

    def test_doubles_have_doubles_bounds(self):
        drawn = weir.random.uniform(range=(1e9, 1e9 + 1), shape=self.COUNT,
                                    dtype=np.float64, rng=self.rng).numpy()
        self.assertGreaterEqual(drawn.min(), 1e9)
        self.assertLessEqual(drawn.max(), 1e9 + 1)
        self.assertAlmostEqual(drawn.mean() - 1e9, .5, delta=0.05)

    def test_a_fork_has_a_generator_of_its_own(self):
        mine = weir.random.default_rng()
        state = mine.get_state()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, weir.random.default_rng().get_state().encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as found:
            self.assertNotEqual(found.read(), state)
        os.waitpid(child, 0)
        self.assertIs(weir.random.default_rng(), mine)

    def test_coins(self):
        for probability in (0, 0.25, 1):
            drawn = weir.random.coin_flip(probability=probability,
                                          shape=self.COUNT, rng=self.rng)
            self.assertEqual(drawn.dtype, np.bool_)
            self.assertAlmostEqual(drawn.numpy().mean(), probability,
                                   delta=0.02)
        self.assertEqual(weir.random.coin_flip(dtype=np.int32).dtype, np.int32)
        with self.assertRaisesRegex(ValueError, "probability"):
            weir.random.coin_flip(probability=1.5)

    def test_choices(self):
        drawn = weir.random.choice(5, shape=self.COUNT, rng=self.rng).numpy()
        self.assertEqual(np.unique(drawn).tolist(), [0, 1, 2, 3, 4])
        rows = np.arange(6).reshape(3, 2)
        picked = weir.random.choice(weir.asarray(rows), shape=(7,),
                                    rng=self.rng).numpy()
        self.assertEqual(picked.shape, (7, 2))
        self.assertTrue(all(row in rows.tolist() for row in picked.tolist()))
        with self.assertRaisesRegex(ValueError, "nothing"):
            weir.random.choice(0)
        with self.assertRaisesRegex(ValueError, "nothing"):
            weir.random.choice(weir.asarray(3))

    def test_what_is_missing_is_said_by_name(self):
        with self.assertRaisesRegex(NotImplementedError, "RandomNormal"):
            weir.random.normal()


if __name__ == "__main__":
    skipping.main()
