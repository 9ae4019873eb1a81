#!/usr/bin/env python3
"""Tasks of asyncio: none holds up another, nor the loop."""

import asyncio
import threading
import unittest
import warnings

from spaces_server import WithServer
import numpy as np
import running
import skipping
import weir
from weir.errors import (
    Aborted,
    Cancelled,
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    Unimplemented,
    UnusableConnection,
)

SECONDS = 60


class Tasks(WithServer):

    def run_with(self, program, **options):
        """A coroutine of a connection, with what it returns."""
        self.connect().close()  # skips where there are no spaces

        async def run():
            async with weir.aconnect(self.server.grpc, **{
                    "send_after": 0.001, **options}) as connection:
                return await asyncio.wait_for(program(connection), SECONDS)

        return asyncio.run(run())

    def test_results_are_awaited(self):
        async def program(connection):
            x = connection.tensor(np.arange(3, dtype=np.float32))
            y = await (x + 1)
            self.assertIn("ready", repr(y))
            np.testing.assert_array_equal(await (y * 2).anumpy(), [2, 4, 6])
            self.assertEqual(await weir.sum(y).aitem(), 6)
            batch = await weir.as_batch([np.ones(2), np.ones(3)])
            self.assertEqual([len(each) for each in await batch.anumpy()],
                             [2, 3])
            await connection.aflush()
            image = np.zeros((2, 1, 8, 8), np.float32)
            arrays = await connection.aevaluate(weir.Model("digits"),
                                                {"image": image}, timeout=30)
            kept = await connection.aevaluate(
                weir.Model("digits"), {"image": connection.tensor(image)},
                outputs=["digit"])
            np.testing.assert_array_equal(await kept["digit"].anumpy(),
                                          arrays["digit"])

        self.run_with(program)

    def test_one_that_goes_on_asking_holds_up_nobody(self):
        async def program(connection):
            x = connection.tensor(np.ones(2))
            over = False

            async def go_on():
                while not over:
                    _ = x + 1
                    await asyncio.sleep(0)

            asking = asyncio.create_task(go_on())
            try:
                for _ in range(3):
                    read = await asyncio.wait_for((x + 1).anumpy(), 20)
                    np.testing.assert_array_equal(read, [2, 2])
            finally:
                over = True
                await asking

        self.run_with(program)

    def test_deadlines_hold_where_the_space_is_full(self):
        async def program(connection):
            gate = weir.Timeline()
            x = connection.tensor(np.ones(2))
            for _ in range(4):  # more than may be unfinished
                _ = weir.ops.add(x, x, after=[gate.at(1)])
            late = x + 1
            with self.assertRaises(DeadlineExceeded):
                await asyncio.wait_for(late.anumpy(0.2), 20)
            # Nor does the loop wait between those of different deadlines.
            with weir.deadline(20):
                one = x + 1
            with weir.deadline(25):
                two = x + 2
            await asyncio.to_thread(gate.signal, 1)
            np.testing.assert_array_equal(await one.anumpy(), [2, 2])
            np.testing.assert_array_equal(await two.anumpy(), [3, 3])

        self.run_with(program, quota=weir.Amounts(works=8))

    def test_a_connection_that_nobody_waits_for_any_more_is_closed(self):
        self.connect().close()

        async def program(pause):
            async def connect():
                return await weir.aconnect(self.server.grpc)

            opening = asyncio.create_task(connect())
            await asyncio.sleep(pause)
            opening.cancel()
            try:
                await (await opening).aclose()
            except asyncio.CancelledError:
                pass

        for pause in (0, 0.001, 0.005, 0.02):
            asyncio.run(program(pause))
            for thread in threading.enumerate():
                if thread is not threading.current_thread() and (
                        not thread.daemon):
                    thread.join(SECONDS)
            with self.assertRaises(UnusableConnection):
                weir.current_connection()

    def test_one_that_waits_holds_up_nobody(self):
        async def program(connection):
            gate = weir.Timeline()
            x = connection.tensor(np.ones(2))
            held = weir.ops.add(x, x, after=[gate.at(1)])
            order = []

            async def wait_for(what, awaitable):
                await awaitable
                order.append(what)

            waiting = [asyncio.create_task(wait_for("held", held.anumpy())),
                       asyncio.create_task(wait_for("gate", gate.reached(1)))]
            await asyncio.sleep(0)
            for turn in range(50):  # the loop goes on, and so does the server
                self.assertEqual((await (x * turn).anumpy())[0], turn)
            self.assertEqual(order, [])
            gate.signal(1)
            await asyncio.gather(*waiting)
            self.assertEqual(sorted(order), ["gate", "held"])
            self.assertEqual(gate.value, 1)

        self.run_with(program)

    def test_two_tasks_in_turns(self):
        async def program(connection):
            ping, pong = weir.Timeline(), weir.Timeline()
            rounds = 20

            async def play(mine, other, start):
                for turn in range(1, rounds + 1):
                    if turn > 1 or not start:
                        await other.reached(turn - (1 if start else 0))
                    mine.signal(turn)

            await asyncio.gather(play(ping, pong, True),
                                 play(pong, ping, False))
            self.assertEqual((ping.value, pong.value), (rounds, rounds))
            del connection

        self.run_with(program)

    def test_many_tasks(self):
        async def program(connection):
            shared = connection.tensor(np.arange(4.))

            async def chain(start):
                with weir.EvalContext():
                    y = shared + start
                    for _ in range(20):
                        y = y * 1 + 1
                        await asyncio.sleep(0)
                    return await y.anumpy()

            results = await asyncio.gather(*map(chain, range(32)))
            for start, found in enumerate(results):
                np.testing.assert_array_equal(found,
                                              np.arange(4.) + start + 20)

        self.run_with(program)

    def test_a_context_is_one_tasks_at_a_time(self):
        async def program(connection):
            context = weir.EvalContext(connection=connection)

            async def enter():
                with context:
                    return await (connection.tensor([1.0]) + 1).aitem()

            with context:
                with context:
                    pass
                with self.assertRaisesRegex(Aborted, "task") as raised:
                    await asyncio.create_task(enter())
                self.assertEqual(raised.exception.reason, "CONTEXT_BUSY")
            self.assertEqual(await asyncio.create_task(enter()), 2)

        self.run_with(program)

    def test_a_context_is_not_that_of_tasks_made_in_its_block(self):
        async def program(connection):
            context = weir.EvalContext(device="cpu", connection=connection)
            x = connection.tensor([1.0])
            image = np.zeros((2, 1, 8, 8), np.float32)

            def use():
                self.assertIsNone(weir.EvalContext.current())
                # What needs no context is as the block says.
                made = weir.asarray([1.0])
                self.assertEqual(made.item(), 1)
                for ask in (lambda: x + 1, lambda: connection.evaluate(
                        weir.Model("digits"), {"image": image}),
                        lambda: connection.aevaluate(
                            weir.Model("digits"), {"image": image})):
                    with self.assertRaisesRegex(
                            Aborted, f"{context.number}.*task") as raised:
                        ask()
                    self.assertEqual(raised.exception.reason, "CONTEXT_BUSY")
                with weir.EvalContext(connection=connection) as own:
                    self.assertIs(weir.EvalContext.current(), own)
                    return (x + 1).item()

            async def use_in_task(until=None):
                if until is not None:
                    await until.wait()
                return use()

            left = asyncio.Event()
            with context:
                self.assertEqual(await asyncio.create_task(use_in_task()), 2)
                self.assertEqual(await asyncio.to_thread(use), 2)
                # Reading is of no context.
                self.assertEqual(await asyncio.wait_for(
                    (x + 2).aitem(), SECONDS), 3)
                late = asyncio.create_task(use_in_task(left))
                self.assertIs(weir.EvalContext.current(), context)
            left.set()
            self.assertEqual(await late, 2)

        self.run_with(program)

    def test_a_model_is_evaluated_in_the_block_that_asks_for_it(self):
        async def program(connection):
            gate, done = weir.Timeline(), weir.Timeline()
            image = np.zeros((2, 1, 8, 8), np.float32)

            def ask(**edges):
                return connection.aevaluate(
                    weir.Model("digits"), {"image": image}, **edges)

            with weir.EvalContext(connection=connection):
                # In tasks, which have no context: it was asked for here.
                both = [asyncio.create_task(ask(after=[gate.at(1)],
                                                signal=[done.at(1)])),
                        asyncio.create_task(ask())]
                await asyncio.sleep(0)
                # Behind both, and holds up nobody.
                y = connection.tensor([1.0]) + 1
                self.assertEqual(await connection.tensor([2.0]).aitem(), 2)
            await asyncio.to_thread(gate.signal, 1)
            one, other = await asyncio.gather(*both)
            np.testing.assert_array_equal(one["digit"], other["digit"])
            self.assertEqual(await y.aitem(), 2)

        self.run_with(program)

    def test_a_task_asks_for_more_than_is_sent_at_once(self):
        async def program(connection):
            y = connection.tensor(np.zeros(3))
            for _ in range(3000):
                y = y + 1
            large = [connection.tensor(np.full(1 << 16, n)) for n in range(8)]
            np.testing.assert_array_equal(await y.anumpy(), [3000] * 3)
            for n, each in enumerate(large):
                self.assertEqual((await each.anumpy())[0], n)

        self.run_with(program)

    def test_failures_have_their_reasons(self):
        async def program(connection):
            x = connection.tensor([1.0])
            picked = weir.ops.gather(x, [7]) + 1
            for awaitable in (picked.anumpy, picked.aevaluate):
                with self.assertRaises(InvalidArgument) as raised:
                    await awaitable()
                self.assertEqual(raised.exception.reason, "INDEX_OUT_OF_RANGE")
                self.assertIsNotNone(raised.exception.report)
                self.assertIn(__file__, str(raised.exception))
            with self.assertRaises(InvalidArgument):
                await weir.ops.mat_mul(np.ones((2, 3)), np.ones((2, 3)))
            with self.assertRaises(NotFound):
                await connection.aevaluate(weir.Model("letters"), {})

        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing is told at the end
            self.run_with(program)

    def test_time_is_up(self):
        async def program(connection):
            never = weir.Timeline()
            x = connection.tensor([1.0])
            held = weir.ops.add(x, x, after=[never.at(1)])
            with self.assertRaises(DeadlineExceeded):
                await held.anumpy(timeout=0.05)
            with self.assertRaises(DeadlineExceeded):
                await never.reached(1, timeout=0.05)
            with weir.deadline(0.05):
                with self.assertRaises(DeadlineExceeded):
                    await held
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(held.anumpy(), 0.05)
            never.signal(1)
            self.assertEqual(await held.aitem(), 2)

        self.run_with(program)

    def test_what_is_awaited_may_end_otherwise(self):
        async def program(connection):
            timeline = weir.Timeline()
            x = connection.tensor([1.0])
            held = weir.ops.add(x, x, after=[timeline.at(1)])
            waiting = [asyncio.create_task(held.anumpy()),
                       asyncio.create_task(timeline.reached(1))]
            await asyncio.sleep(0)
            await connection.aflush()
            timeline.delete()
            for each in await asyncio.gather(*waiting,
                                             return_exceptions=True):
                self.assertIsInstance(each, (Cancelled, NotFound))

        self.run_with(program)


class Connections(WithServer):

    def test_one_is_opened_and_closed(self):
        self.connect().close()

        async def program():
            connection = await weir.aconnect(self.server.grpc, label="task")
            self.assertEqual(connection.space().label, "task")
            await connection.aclose()
            with self.assertRaises(weir.errors.UnusableConnection):
                connection.tensor([1.0])
            with self.assertRaises(weir.errors.InvalidArgument):
                await weir.aconnect(self.server.grpc, label="x" * 257)

        asyncio.run(program())

    def test_threads_and_tasks_share_one(self):
        connection = self.connect(send_after=0.001)

        async def add(x):
            return await (x + 1)

        x = connection.tensor([1.0])
        for _ in range(3):
            x = asyncio.run(add(x)) + 1
        self.assertEqual(x.item(), 7)


class NoSpaces(unittest.TestCase):

    def test_a_server_without_spaces_says_so(self):
        async def program(target):
            async with weir.aconnect(target):
                pass

        with running.Server("--max-spaces=0") as server, \
                self.assertRaises(Unimplemented):
            asyncio.run(program(server.grpc))


if __name__ == "__main__":
    skipping.main()
