#!/usr/bin/env python3
"""The session of a connection: commands without round trips between them, each
done once however often the stream breaks."""

import asyncio
import concurrent.futures
import tempfile
import threading
import time
import unittest

from breaking_proxy import BreakingProxy
from spaces_server import WithServer
import numpy as np
import running
import skipping
import weir
from weir import _outgoing as outgoing
from weir._proto.command_pb2 import Command
from weir._proto.session_pb2 import SessionRequest

SECONDS = 60


class WithSession(WithServer):

    def connect(self, target=None, **options):
        connection = super().connect(
            **({"target": target} if target else {}), **options)
        if connection.session is None:
            self.skipTest("the server offers no sessions")
        return connection


class Outgoing(unittest.TestCase):
    """What waits for gRPC to take it."""

    def setUp(self):
        self.answered = 0
        self.outgoing = outgoing.Outgoing(
            SessionRequest(open={"session": 7}), 10_000, lambda: self.answered)
        self.taken = iter(self.outgoing)
        self.assertEqual(self.take().open.session, 7)

    def take(self):
        return SessionRequest.FromString(next(self.taken))

    def commands(self, count, label=""):
        """Each with its number, and so many bytes more."""
        self.last = getattr(self, "last", 0) + count
        first = self.last - count + 1
        return first, [Command(evaluate={
            "work": number, "label": label}).SerializeToString()
            for number in range(first, first + count)]

    def numbers(self, message):
        self.assertEqual(
            [each.evaluate.work for each in message.commands],
            list(range(message.first_sequence,
                       message.first_sequence + len(message.commands))))
        return message.first_sequence, len(message.commands)

    def test_what_was_not_taken_takes_in_what_comes(self):
        self.assertEqual(self.outgoing.add(*self.commands(2)), 1)
        self.assertEqual(self.outgoing.add(*self.commands(3)), 0)
        self.answered = 4
        message = self.take()
        self.assertEqual(self.numbers(message), (1, 5))
        self.assertEqual(message.acknowledged, 4)
        self.assertEqual(self.outgoing.add(*self.commands(1)), 1)
        self.outgoing.end()
        self.assertEqual(self.numbers(self.take()), (6, 1))
        with self.assertRaises(StopIteration):
            next(self.taken)

    def test_a_message_has_bounds(self):
        self.assertEqual(self.outgoing.add(*self.commands(1025)), 2)
        self.assertEqual(self.numbers(self.take()), (1, 1024))
        self.assertEqual(self.numbers(self.take()), (1025, 1))
        # One that is larger goes by itself.
        self.assertEqual(
            self.outgoing.add(*self.commands(2, "x" * 20_000)), 2)
        self.assertEqual(self.outgoing.add(*self.commands(1)), 1)
        self.assertEqual(self.numbers(self.take()), (1026, 1))
        self.assertEqual(self.numbers(self.take()), (1027, 1))
        self.assertEqual(self.numbers(self.take()), (1028, 1))

    def test_answers_are_acknowledged_with_what_waits(self):
        self.answered = 300
        self.outgoing.acknowledge()
        self.outgoing.acknowledge()
        self.assertEqual(self.outgoing.add(*self.commands(1)), 0)
        message = self.take()
        self.assertEqual((self.numbers(message), message.acknowledged),
                         ((1, 1), 300))
        self.outgoing.acknowledge()
        message = self.take()
        self.assertEqual((message.first_sequence, message.acknowledged),
                         (0, 300))


class Messages(WithSession):

    FLAGS = ("--space-works=4096",)

    def test_batches_follow_without_waiting(self):
        connection = self.connect()
        x = connection.tensor(np.zeros(2))
        before = connection.calls
        y = x
        for _ in range(1000):
            y = y + 1
        np.testing.assert_array_equal(y.numpy(), [1000, 1000])
        self.assertLessEqual(connection.calls - before, 5)

    def test_what_waits_holds_up_no_other_thread(self):
        connection = self.connect(send_after=0.001)
        gate = weir.Timeline()

        def wait():
            gate.wait(1)
            return gate.value

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(wait) for _ in range(4)]
            for turn in range(20):
                self.assertEqual((connection.tensor([1.0]) + turn).item(),
                                 turn + 1)
            self.assertFalse(any(each.done() for each in waiting))
            gate.signal(1)
            self.assertEqual([each.result(SECONDS) for each in waiting],
                             [1] * 4)

    def test_a_thread_waits_no_longer_than_the_connection_says(self):
        connection = self.connect(timeout=0.2)
        never = weir.Timeline()
        x = connection.tensor([1.0])
        y = weir.ops.add(x, x, after=[never.at(1)])
        for wait in (lambda: never.wait(1), y.evaluate, y.numpy):
            began = time.monotonic()
            with self.assertRaises(weir.errors.DeadlineExceeded):
                wait()
            self.assertLess(time.monotonic() - began, SECONDS / 2)
        never.signal(1)
        self.assertEqual(y.item(), 2)

    def test_a_space_has_it(self):
        connection = self.connect()
        self.assertEqual(connection.space().held.sessions, 1)

    def test_large_arrays_go_beside_it(self):
        connection = self.connect()
        large = np.arange(1 << 20, dtype=np.float64)
        x = connection.tensor(large) + 1
        small = connection.tensor([1.0]) + x[0]
        np.testing.assert_array_equal(x.numpy(), large + 1)
        self.assertEqual(small.item(), 2)


class Breaks(WithSession):

    def setUp(self):
        self.proxy = self.enterContext(BreakingProxy(self.server.grpc))
        self.connection = self.connect(self.proxy.address, send_after=0.001)
        self.session = self.connection.session

    def await_resumed(self, times):
        end = time.monotonic() + SECONDS
        while self.session.resumed < times:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)

    def test_commands_are_done_once(self):
        """A point that were signaled twice would be an error, and a work too
        many a wrong sum."""
        timeline = weir.Timeline()
        x = self.connection.tensor([0.0])
        for turn in range(1, 101):
            x = x + 1
            timeline.signal(turn)
            if turn % 20 == 0:
                self.proxy.cut()
        self.assertEqual(x.item(), 100)
        self.assertEqual(timeline.value, 100)
        self.await_resumed(1)

    def test_what_is_on_its_way_arrives(self):
        gate = weir.Timeline()
        x = self.connection.tensor([1.0])
        held = weir.ops.add(x, x, after=[gate.at(1)])
        self.connection.flush()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(held.numpy)
            for times in range(1, 4):
                self.proxy.cut()
                self.await_resumed(times)
                self.assertFalse(waiting.done())
            gate.signal(1)
            self.assertEqual(waiting.result(SECONDS), [2])

    def test_what_is_asked_for_meanwhile_goes_later(self):
        x = self.connection.tensor([1.0])
        self.connection.flush()
        self.proxy.cut(refuse=True)
        serving = threading.Timer(0.3, self.proxy.serve)
        serving.start()
        self.addCleanup(serving.join)
        y = x
        for _ in range(2000):  # more than go without an answer
            y = y + 1
        self.assertEqual(y.item(), 2001)
        self.await_resumed(1)

    def test_tasks_see_nothing_of_it(self):
        async def program():
            x = self.connection.tensor([1.0])
            for turn in range(20):
                x = x + 1
                if turn % 5 == 0:
                    self.proxy.cut()
                await self.connection.aflush()
            self.await_resumed(1)
            return await x.anumpy()

        self.assertEqual(asyncio.run(program()), [21])


class Lingers(WithSession):
    """Not long."""

    FLAGS = ("--linger=0.1",)

    def test_what_comes_after_a_session_goes_without_one(self):
        with BreakingProxy(self.server.grpc) as proxy:
            connection = self.connect(proxy.address)
            x = connection.tensor([1.0])
            connection.flush()
            proxy.cut(refuse=True)
            time.sleep(1.5)  # nobody takes it up
            proxy.serve()
            end = time.monotonic() + SECONDS
            while not connection.session.is_lost:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.005)
            self.assertEqual((x + 1).item(), 2)
            connection.close()


class Ends(WithSession):

    def test_a_server_that_starts_again_has_lost_it(self):
        with tempfile.TemporaryDirectory() as folder:
            address = f"unix:{folder}/socket"
            with running.Server(grpc=address) as server:
                connection = self.connect(address)
                x = connection.tensor([1.0])
                connection.flush()
                server.process.kill()
                server.process.wait()
            with running.Server(grpc=address):
                end = time.monotonic() + SECONDS
                while True:
                    with self.assertRaises(weir.errors.WeirError) as raised:
                        (x + 1).numpy()
                    if raised.exception.reason == "SPACE_LOST":
                        break
                    self.assertLess(time.monotonic(), end)
                connection.close()

    def test_closing_ends_it(self):
        connection = self.connect()
        x = connection.tensor([1.0]) + 1
        threads = threading.active_count()
        connection.close()
        self.assertLess(threading.active_count(), threads)
        with self.assertRaises(weir.errors.UnusableConnection):
            x.numpy()


if __name__ == "__main__":
    skipping.main()
