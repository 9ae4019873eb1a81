#!/usr/bin/env python3
"""weir.profile: where the time of a block went."""

import asyncio
import concurrent.futures
import time

from spaces_server import WithServer
import numpy as np
import skipping
import weir

LONG = 0.2  # seconds
MOMENT = 0.9 * LONG


class Profiles(WithServer):

    def setUp(self):
        self.connection = self.connect(send_after=0.001)
        self.x = self.connection.tensor(np.ones((256, 256), np.float32))
        self.x.evaluate()

    def test_each_part_is_where_it_belongs(self):
        gate = weir.Timeline()
        with weir.profile() as profile:
            held = weir.ops.mat_mul(self.x, self.x, after=[gate.at(1)])
            self.connection.flush()
            time.sleep(LONG)  # the work waits meanwhile
            gate.signal(1)
            held.numpy()
        self.assertGreater(profile.client, MOMENT)
        self.assertGreater(profile.queue, MOMENT)
        self.assertGreater(profile.device, 0)
        self.assertLess(profile.device, profile.seconds)
        self.assertLess(profile.client, profile.seconds)
        self.assertGreaterEqual(
            profile.client + profile.wire + profile.queue + profile.device,
            0.99 * profile.seconds)
        [work] = profile.works
        self.assertEqual(work.name, "MatMul")
        self.assertIn(__file__, work.call_site)
        self.assertGreater(work.queue, MOMENT)
        self.assertGreater(work.device, 0)

    def test_waiting_is_not_the_clients(self):
        gate = weir.Timeline()

        def open_later():
            time.sleep(LONG)
            gate.signal(1)

        with concurrent.futures.ThreadPoolExecutor(1) as pool, \
                weir.profile() as profile:
            opened = pool.submit(open_later)
            weir.ops.add(self.x, self.x, after=[gate.at(1)]).numpy()
            opened.result()
        self.assertLess(profile.client, profile.seconds - MOMENT)
        self.assertGreater(profile.queue, MOMENT)

    def test_it_waits_for_what_was_asked_for(self):
        with weir.profile() as profile:
            y = self.x
            for _ in range(10):
                y = y + 1
            weir.asarray(np.zeros(1000, np.uint8))
        self.assertEqual(len(profile.works), 10)
        states = weir.errors.sync_report_pb2
        self.assertTrue(all(work.state == states.WORK_STATE_COMPLETED
                            for work in profile.works))
        self.assertGreater(profile.sent_bytes, 1000)
        self.assertLess(profile.calls, 5)
        text = str(profile)
        self.assertIn("10 works in", text)
        self.assertRegex(text, r"Add x 10: .*profile_test\.py:\d+\)")
        self.assertIn("weir.Profile of", repr(profile))

    def test_what_failed_is_among_them(self):
        with weir.profile() as profile:
            picked = weir.ops.gather(self.x, [1000])
            refused = self.x @ np.ones((3, 3), np.float32)
        for each in (picked, refused):
            with self.assertRaises(weir.errors.InvalidArgument):
                each.numpy()
        states = weir.errors.sync_report_pb2
        self.assertEqual([work.state for work in profile.works],
                         [states.WORK_STATE_ERROR] * 2)

    def test_blocks_nest_and_are_of_one_thread(self):
        with weir.profile() as outer:
            _ = self.x + 1
            with weir.profile() as inner:
                _ = self.x + 2
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    pool.submit(lambda: (self.x + 3).numpy()).result()
        self.assertEqual((len(outer.works), len(inner.works)), (2, 1))
        self.assertGreaterEqual(outer.seconds, inner.seconds)
        _ = self.x + 4
        self.assertEqual(len(outer.works), 2)
        with self.assertRaises(RuntimeError), outer:
            pass

    def test_more_works_than_a_server_remembers(self):
        with weir.profile() as profile:
            y = self.x[:1, :1]
            for _ in range(1100):
                y = y + 1
        self.assertEqual(len(profile.works), 1000)
        self.assertEqual(profile.omitted, 101)

    def test_tasks_wait_together(self):
        gate = weir.Timeline()

        async def program():
            async def read(count):
                return await weir.ops.add(self.x, np.float32(count),
                                          after=[gate.at(1)]).anumpy()

            async def open_later():
                await asyncio.sleep(LONG)
                gate.signal(1)

            await asyncio.gather(*map(read, range(5)), open_later())

        with weir.profile() as profile:
            asyncio.run(program())
        self.assertEqual(len(profile.works), 5)
        self.assertGreater(profile.queue, MOMENT)
        self.assertLess(profile.queue, profile.seconds)

    def test_a_connection_may_be_closed_in_its_block(self):
        short = self.connect()
        with weir.profile() as profile:
            _ = short.tensor(np.ones(3)) + 1
            _ = self.x + 1
            short.close()
        self.assertEqual(len(profile.works), 1)
        with weir.profile() as after:
            _ = self.x + 1
        self.assertEqual((len(profile.works), len(after.works)), (1, 1))

    def test_nothing_happened(self):
        with weir.profile() as profile:
            pass
        self.assertEqual((profile.works, profile.calls, profile.device),
                         ((), 0, 0))


if __name__ == "__main__":
    skipping.main()
