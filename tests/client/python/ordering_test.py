#!/usr/bin/env python3
"""Who comes after whom: contexts, threads, tasks, timelines, deadlines."""

import asyncio
import concurrent.futures
import gc
import queue
import threading
import time
import unittest
import unittest.mock

from spaces_server import WithServer
import numpy as np
import skipping
import weir
from weir.errors import Aborted, Cancelled, DeadlineExceeded

SECONDS = 60


class Modes(WithServer):

    def test_each_returns_when_it_says(self):
        x = self.connect().tensor(np.ones(4, np.float32))
        states = weir.errors.sync_report_pb2
        y = x + 1
        self.assertIsNone(y.report)
        with weir.EvalMode.SYNC_CPU:
            y = x + 1
        self.assertGreaterEqual(y.report.state, states.WORK_STATE_SCHEDULED)
        with weir.EvalMode.SYNC_FULL:
            y = x + 1
            self.assertEqual(y.report.state, states.WORK_STATE_COMPLETED)
            self.assertIn("ready", repr(y))
            with self.assertRaises(weir.errors.InvalidArgument):
                weir.ops.gather(x, [7])
            with weir.EvalMode.EAGER:
                self.assertIsNone((x + 1).report)

    def test_eager_returns_before_the_work_can_run(self):
        connection = self.connect()
        x = connection.tensor(np.ones(4, np.float32))
        held = weir.Timeline()
        y = weir.ops.add(x, x, after=[held.at(1)])
        z = y + 1
        connection.flush()  # the server has taken both
        self.assertIn("accepted", repr(z))
        with self.assertRaises(DeadlineExceeded):
            z.numpy(timeout=0.05)
        held.signal(1)
        np.testing.assert_array_equal(z.numpy(), np.full(4, 3, np.float32))


class Contexts(WithServer):

    def test_blocks_nest(self):
        self.connect()
        self.assertIsNone(weir.EvalContext.current())
        outer, inner = weir.EvalContext(), weir.EvalContext(device="cpu")
        with outer:
            with inner:
                self.assertIs(weir.EvalContext.current(), inner)
                with outer, weir.EvalMode.SYNC_CPU:
                    self.assertIs(weir.EvalContext.current(), outer)
            self.assertIs(weir.EvalContext.current(), outer)
            y = weir.asarray([1.0]) + 1
        self.assertIsNone(weir.EvalContext.current())
        self.assertEqual(y.item(), 2)
        self.assertEqual(inner.device, weir.Device("cpu"))

    def test_a_context_is_one_threads_at_a_time(self):
        self.connect()
        context = weir.EvalContext()

        def enter():
            self.assertIsNone(weir.EvalContext.current())
            with context:
                return (weir.asarray([1.0]) + 1).item()

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with context:
                with self.assertRaisesRegex(Aborted, "another") as raised:
                    pool.submit(enter).result(SECONDS)
                self.assertEqual(raised.exception.reason, "CONTEXT_BUSY")
            self.assertEqual(pool.submit(enter).result(SECONDS), 2)

    def test_of_two_threads_one_has_it(self):
        self.connect()
        context = weir.EvalContext()
        rounds = 10_000
        together = threading.Barrier(2)

        def contend():
            won = 0
            for _ in range(rounds):
                together.wait(SECONDS)
                try:
                    with context:
                        won += 1
                        together.wait(SECONDS)  # the other has tried
                except Aborted as error:
                    self.assertEqual(error.reason, "CONTEXT_BUSY")
                    together.wait(SECONDS)
            return won

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            contenders = [pool.submit(contend) for _ in range(2)]
            self.assertEqual(sum(each.result() for each in contenders),
                             rounds)

    def test_the_end_of_a_block_ends_no_work(self):
        connection = self.connect()
        outer, inner, gate = weir.EvalContext(), weir.EvalContext(), (
            weir.Timeline())
        x = connection.tensor([1.0])
        with outer:
            with inner:
                with outer:
                    y = weir.ops.add(x, x, after=[gate.at(1)])
                z = x + 2
            self.assertEqual(z.item(), 3)
            late = y + 1
        with self.assertRaises(DeadlineExceeded):
            y.evaluate(timeout=0.05)
        gate.signal(1)
        self.assertEqual(late.item(), 3)

    def test_tasks_have_blocks_of_their_own(self):
        self.connect()
        one, other = weir.EvalContext(), weir.EvalContext()

        async def both():
            inside, seen = asyncio.Event(), asyncio.Event()

            async def enter():
                with one:
                    inside.set()
                    await seen.wait()
                    return weir.EvalContext.current()

            async def look():
                await inside.wait()
                self.assertIsNone(weir.EvalContext.current())
                with other:
                    seen.set()
                    return weir.EvalContext.current()

            return await asyncio.gather(enter(), look())

        self.assertEqual(asyncio.run(both()), [one, other])

    def test_a_seed_says_what_comes(self):
        self.connect()

        def draw(seed):
            with weir.EvalContext(rng_seed=seed):
                return np.concatenate([
                    weir.ops.random_uniform([8]).numpy() for _ in range(2)])

        np.testing.assert_array_equal(draw(5), draw(5))
        self.assertFalse((draw(5) == draw(6)).any())

    def test_a_closed_one_is_refused_and_given_back(self):
        connection = self.connect()
        context = weir.EvalContext()
        forgotten = weir.EvalContext()
        self.assertEqual(connection.space().held.contexts, 2)
        del forgotten
        context.close()
        context.close()
        self.assertEqual(connection.space().held.contexts, 0)
        with self.assertRaises(weir.errors.NotFound), context:
            pass

    def test_a_device_that_is_not_there(self):
        self.connect()
        with self.assertRaisesRegex(weir.errors.NotFound, "cuda:7"):
            weir.EvalContext(device="cuda:7")


class Threads(WithServer):

    def test_each_gets_what_it_asked_for(self):
        connection = self.connect(send_after=0.001)
        shared = connection.tensor(np.arange(8, dtype=np.float32))

        def run(start):
            with weir.EvalContext():
                y = shared + start
                for _ in range(50):
                    y = y * 1 + 1
                return y.numpy()

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for start, result in zip(range(64), pool.map(run, range(64))):
                np.testing.assert_array_equal(
                    result, np.arange(8, dtype=np.float32) + start + 50)

    def test_a_tensor_goes_from_thread_to_thread(self):
        connection = self.connect()

        def add(tensor):
            return tensor + 1

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            y = connection.tensor([0.0])
            for _ in range(20):
                y = pool.submit(add, y).result(SECONDS) + 1
        self.assertEqual(y.item(), 40)

    def test_many_wait_for_one_work(self):
        connection = self.connect(send_after=0.001)
        gate = weir.Timeline()
        # Run twice, it would draw other numbers.
        y = weir.ops.random_uniform(shape=[4], after=[gate.at(1)])
        connection.flush()
        asked = threading.Barrier(33)

        def wait():
            asked.wait(SECONDS)
            return y.numpy()

        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            waiting = [pool.submit(wait) for _ in range(32)]
            asked.wait(SECONDS)
            self.assertEqual(connection.tensor([1.0]).item(), 1)
            self.assertFalse(any(each.done() for each in waiting))
            gate.signal(1)
            first, *others = [each.result(SECONDS) for each in waiting]
        self.assertTrue(first.all())
        for each in others:
            np.testing.assert_array_equal(each, first)

    def test_what_waits_is_sent_whoever_adds_to_it(self):
        connection = self.connect(send_after=0.0005)
        x = connection.tensor([0.0]).evaluate()
        end = time.monotonic() + SECONDS
        for _ in range(200):
            made = [x + 1 for _ in range(20)]
            while any("not sent yet" in repr(each) for each in made):
                self.assertLess(time.monotonic(), end)
                time.sleep(0.001)

    def test_what_is_freed_has_no_deadline_of_a_block(self):
        connection = self.connect()
        kept = [connection.tensor([0.0]) for _ in range(50)]
        over = time.monotonic() + 0.3
        with weir.deadline(0.3):
            self.assertEqual((kept[0] + 1).item(), 1)
        time.sleep(max(0, over - time.monotonic()))
        del kept
        self.assertEqual(connection.space().held.tensors, 0)

    def test_what_a_failed_call_was_to_free_is_freed_later(self):
        connection = self.connect(quota=weir.Amounts(works=8))
        self.enterContext(unittest.mock.patch.object(
            connection, "session", None))  # each batch is a call
        gate = weir.Timeline()
        x = connection.tensor([0.0])
        held = [weir.ops.add(x, x, after=[gate.at(1)]) for _ in range(2)]
        connection.flush()
        freed = [connection.tensor([0.0]) for _ in range(50)]
        connection.flush()
        with weir.deadline(0.3):  # which the works before do not let begin
            del freed
            late = x + 1
        with self.assertRaises(DeadlineExceeded):
            connection.flush()
            late.numpy()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(gate.signal, 1).result(SECONDS)
        self.assertEqual([each.item() for each in held], [0, 0])
        connection.flush()
        self.assertLess(connection.space().held.tensors, 10)

    def test_what_cannot_be_sent_fails_and_holds_up_nobody(self):
        connection = self.connect()
        with unittest.mock.patch.object(
                connection.channel, "start", side_effect=ValueError("never")):
            with weir.deadline(SECONDS):
                x = connection.tensor([1.0])
            connection.flush()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with self.assertRaisesRegex(weir.errors.Unavailable, "never"):
                pool.submit(x.numpy).result(SECONDS)
        self.assertEqual(connection.tensor([2.0]).item(), 2)

    def test_what_another_has_yet_to_send_is_not_freed(self):
        connection = self.connect()
        x = connection.tensor([1.0])
        connection.flush()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            y = pool.submit(lambda tensor: tensor + 1, x).result(SECONDS)
            del x
            gc.collect()
            connection.flush()  # what this thread has given up
            self.assertEqual(y.item(), 2)

    def test_who_waits_for_another_does_not_hold_it_up(self):
        connection = self.connect(timeout=10)
        gate = weir.Timeline()
        made = queue.SimpleQueue()

        def wait_for_gate():
            x = connection.tensor([1.0])
            y = weir.ops.add(x, x, after=[gate.at(1)])
            made.put(x)
            return y.item()

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(wait_for_gate)
            x = made.get(timeout=SECONDS)
            while "not sent" in repr(x):
                pass
            self.assertEqual((x + 1).item(), 2)
            gate.signal(1)
            self.assertEqual(waiting.result(SECONDS), 2)

    def assert_all_have_their_turn(self, gate, ask):
        """`ask` returns 1 to 40, once the gate is open."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask)
            # Nothing comes of this but time to be refused.
            concurrent.futures.wait([asked], timeout=0.3)
            gate.signal(1)
            self.assertEqual(asked.result(SECONDS), list(range(1, 41)))

    def test_more_than_a_space_holds_waits_its_turn(self):
        connection = self.connect(quota=weir.Amounts(works=8))
        gate = weir.Timeline()

        def ask():
            held = [weir.ops.add(np.float32(each), np.float32(1),
                                 after=[gate.at(1)]) for each in range(40)]
            return [each.item() for each in held]

        self.assert_all_have_their_turn(gate, ask)

    def test_a_work_that_fails_leaves_the_others_their_turn(self):
        connection = self.connect(quota=weir.Amounts(works=8))
        gate = weir.Timeline()
        two = connection.tensor([1.0, 2.0])
        three = connection.tensor([1.0, 2.0, 3.0])

        def ask():
            held = []
            for each in range(40):
                weir.ops.add(two, three)  # they have no shape together
                held.append(weir.ops.add(np.float32(each), np.float32(1),
                                         after=[gate.at(1)]))
            return [each.item() for each in held]

        self.assert_all_have_their_turn(gate, ask)

    def test_what_waits_is_sent_by_itself(self):
        connection = self.connect(send_after=0.001)
        done = weir.Timeline()
        x = connection.tensor([1.0])
        y = weir.ops.add(x, x, signal=[done.at(1)])
        # Another thread's commands do not push this one's.
        waiting = threading.Thread(target=done.wait, args=(1,))
        waiting.start()
        waiting.join(SECONDS)
        self.assertEqual(done.value, 1)
        del y


class Timelines(WithServer):

    def test_they_only_grow(self):
        self.connect()
        timeline = weir.Timeline()
        self.assertEqual(timeline.value, 0)
        timeline.signal(3)
        self.assertEqual(timeline.value, 3)
        timeline.wait(2)
        with self.assertRaises(weir.errors.FailedPrecondition) as raised:
            timeline.signal(3)
        self.assertEqual(raised.exception.reason, "TIMELINE_NOT_INCREASING")
        with self.assertRaises(DeadlineExceeded):
            timeline.wait(4, timeout=0.05)

    def test_those_that_nobody_refers_to_are_given_back(self):
        connection = self.connect(quota=weir.Amounts(timelines=100))
        for _ in range(300):
            weir.Timeline().signal(1)
        with weir.Timeline() as timeline:
            self.assertEqual(connection.space().held.timelines, 1)
            timeline.signal(1)
        timeline.close()
        self.assertEqual(connection.space().held.timelines, 0)
        self.assertIn("closed", repr(timeline))
        with self.assertRaises(weir.errors.NotFound) as raised:
            timeline.signal(2)
        self.assertEqual(raised.exception.reason, "TIMELINE_NOT_FOUND")

    def test_works_go_on_when_their_timelines_are_given_back(self):
        connection = self.connect()
        gate, link = weir.Timeline(), weir.Timeline()
        x = connection.tensor([1.0])
        weir.ops.add(x, x, after=[gate.at(1)], signal=[link.at(1)])
        y = weir.ops.add(x, x, after=[link.at(1)])
        connection.flush()  # until then they refer to it
        del link
        self.assertEqual(connection.space().held.timelines, 2)
        gate.signal(1)
        self.assertEqual(y.item(), 2)
        end = time.monotonic() + SECONDS
        while connection.space().held.timelines > 1:
            self.assertLess(time.monotonic(), end)

    def test_two_buffers_in_turns(self):
        """The producer fills one while the consumer reads the other."""
        self.connect(send_after=0.001)
        filled, read = weir.Timeline(), weir.Timeline()
        buffers = [None, None]
        rounds = 20

        def produce():
            for turn in range(1, rounds + 1):
                if turn > 2:
                    read.wait(turn - 2)
                buffers[turn % 2] = weir.ops.add(
                    np.float32(turn), np.float32(0),
                    signal=[filled.at(turn)])
                weir.current_connection().flush()

        def consume():
            results = []
            for turn in range(1, rounds + 1):
                filled.wait(turn)
                results.append(weir.ops.mul(
                    buffers[turn % 2], np.float32(2),
                    after=[filled.at(turn)], signal=[read.at(turn)]).item())
            return results

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            producer, consumer = pool.submit(produce), pool.submit(consume)
            self.assertEqual(consumer.result(SECONDS),
                             [2 * turn for turn in range(1, rounds + 1)])
            producer.result(SECONDS)

    def test_who_waits_for_a_deleted_one_hears_of_it(self):
        connection = self.connect()
        timeline = weir.Timeline()
        x = connection.tensor([1.0])
        y = weir.ops.add(x, x, after=[timeline.at(1)])
        connection.flush()
        timeline.delete()
        with self.assertRaises(Cancelled) as raised:
            y.numpy()
        self.assertEqual(raised.exception.reason, "TIMELINE_DELETED")


class Deadlines(WithServer):

    def test_a_block_ends_what_it_began(self):
        connection = self.connect()
        never = weir.Timeline()
        x = connection.tensor([1.0]).evaluate()
        with weir.deadline(SECONDS), weir.deadline(0.5):
            z = x + 2
            y = weir.ops.add(x, x, after=[never.at(1)])
            with self.assertRaises(DeadlineExceeded) as raised:
                y.numpy()
        self.assertIsInstance(raised.exception, TimeoutError)
        self.assertEqual((x + 1).item(), 2)
        # What was done by then is there, and what was not never will be.
        self.assertEqual(z.item(), 3)
        with self.assertRaises(DeadlineExceeded):
            y.numpy()

    def test_what_is_sent_later_keeps_its_deadline(self):
        connection = self.connect(timeout=SECONDS)
        gate = weir.Timeline()
        x = connection.tensor([1.0])
        with weir.deadline(0.05):
            y = weir.ops.add(x, x, after=[gate.at(1)])
        self.assertEqual((x + 1).item(), 2)
        with self.assertRaises(DeadlineExceeded):
            y.evaluate(timeout=5)
        gate.signal(1)
        with self.assertRaises(DeadlineExceeded):
            y.numpy()


if __name__ == "__main__":
    skipping.main()
