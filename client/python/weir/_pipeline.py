"""Commands on their way: what a thread asks for is collected and goes to the
server in batches, in its order, one batch under way at a time."""

from __future__ import annotations

import asyncio
import collections
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from weir import errors
from weir._channel import Call
from weir._deadline import current_end, seconds_until
from weir._profile import waiting
from weir._proto import command_pb2, evaluator_pb2
from weir._record import Entry, Record

if TYPE_CHECKING:
    from weir._connection import Connection

# What is collected at most, and what a batch may have with what is freed.
_MOST_WAITING = 256
_MOST_BYTES = 1 << 20
_MOST_COMMANDS = 1024 - 1  # and a Wait
# What a task of asyncio may leave waiting before it holds up its loop.
_MOST_IN_TASK = 4096
_MOST_BYTES_IN_TASK = 64 << 20


class Pipeline:
    """Of one thread at a time; others may send it on and wait for it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        # What was asked for, and what finalizers give up: they run anywhere,
        # so they append, and neither take a lock nor make a call.
        self._entries: collections.deque[Entry | command_pb2.Command] = (
            collections.deque())
        self._lock = threading.RLock()
        # How many of them were asked for, and their bytes.
        self._waiting = 0
        self._bytes = 0
        # Until when they are to be done.
        self._end: float | None = None
        self._sent: tuple[Call, list[Entry]] | None = None
        # Works of batches before, which may not be done.
        self._unfinished: list[int] = []

    def give_up(self, command: command_pb2.Command) -> None:
        """Frees something behind all that was asked for, with the next batch.
        Never blocks."""
        self._entries.append(command)

    def add(self, entry: Entry) -> None:
        """Sends it with others, soon."""
        end = current_end()
        with self._lock:
            full = self._waiting and (self._bytes + entry.size > _MOST_BYTES
                                      or self._end != end)
            if full and self._end != end:
                self.send()
            elif full:
                self._send_some()
            self._end = end
            self._entries.append(entry)
            self._waiting += 1
            self._bytes += entry.size
            first = self._waiting == 1
            if self._waiting >= _MOST_WAITING or self._bytes >= _MOST_BYTES:
                self._send_some()
                return
        if first:
            self.connection.wake()

    def run(self, entry: Entry) -> command_pb2.CommandResult:
        """Sends it now, behind what waits; its result, or why there is none."""
        with self._lock:
            self.add(entry)
            self.settle()
        if entry.failure is not None:
            self.connection.failures.tell(entry.failure)
            raise entry.failure.again()
        assert entry.result is not None
        return entry.result

    def send(self) -> None:
        """Sends what waits. Waits only for the batch before."""
        with self._lock:
            while self._entries:
                self.connection.channel.check_usable()
                self._finish_sent()
                self._start_batch()

    def _send_some(self) -> None:
        """Sends what waits; a task of asyncio leaves it to others as long as
        that is not too much."""
        if self._waiting < _MOST_IN_TASK and self._bytes < _MOST_BYTES_IN_TASK:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                pass
            else:
                self.send_if_idle(lambda _: self.connection.wake())
                return
        self.send()

    def settle(self) -> None:
        """Returns when the server has answered all that was asked for."""
        with self._lock:
            self.send()
            self._finish_sent()

    async def settle_in_task(self) -> None:
        """As `settle`, without holding up other tasks of the thread."""
        # pylint: disable-next=import-outside-toplevel,cyclic-import
        from weir._awaiting import until_done
        while True:
            # Another thread may be waiting with it.
            while not self._lock.acquire(blocking=False):
                await asyncio.sleep(0.001)
            try:
                if self._sent is not None and self._sent[0].done():
                    self._finish_sent()
                if self._sent is None:
                    if not self._entries:
                        return
                    self.connection.channel.check_usable()
                    self._start_batch()
                under_way = self._sent
            finally:
                self._lock.release()
            if under_way is not None:
                await until_done(under_way[0])

    def accept(self, record: Record) -> None:
        """Returns when the server has answered about a record of this
        pipeline, for another thread. The lock's owner may be waiting for that
        thread, with commands that came after."""
        while not record.is_accepted:
            if self._lock.acquire(timeout=0.01):
                try:
                    if not record.is_accepted:
                        self.settle()
                finally:
                    self._lock.release()

    def send_if_idle(self, when_done: Callable[[object], None]) -> None:
        """Sends what waits if that blocks nobody; otherwise `when_done` is
        called when it may be tried again, unless somebody else is at it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._sent is not None and not self._sent[0].done():
                if self._waiting:
                    self._sent[0].add_done_callback(when_done)
                return
            self._finish_sent()
            if self._entries:
                self._start_batch()
                if self._waiting and self._sent is not None:
                    self._sent[0].add_done_callback(when_done)
        finally:
            self._lock.release()

    def _start_batch(self) -> None:
        entries: list[Entry] = []
        works: list[int] = []
        window = self.connection.works_of_a_pipeline()
        size = 0
        while self._entries and len(entries) < _MOST_COMMANDS:
            if len(works) >= window:
                break
            item = self._entries[0]
            if isinstance(item, command_pb2.Command):
                self._entries.popleft()
                entries.append(Entry(item))
                continue
            size += item.size
            if entries and size > _MOST_BYTES:
                break
            self._entries.popleft()
            entries.append(item)
            self._waiting -= 1
            self._bytes -= item.size
            for record in item.outputs:
                record.state = "sent"
            if item.work:
                works.append(item.work)
        if len(self._unfinished) + len(works) > window:
            # The server holds so many works of a space and no more.
            entries.insert(0, Entry(command_pb2.Command(
                wait=command_pb2.Wait(works=self._unfinished))))
            self._unfinished = []
        self._unfinished += works
        request = evaluator_pb2.RunRequest(
            commands=[entry.command for entry in entries])
        channel = self.connection.channel
        self._sent = (channel.start(
            "Evaluator/Run", request, evaluator_pb2.RunResponse,
            seconds_until(self._end, channel.timeout)), entries)

    def _finish_sent(self) -> None:
        if self._sent is None:
            return
        call, entries = self._sent
        try:
            with waiting():
                reply: evaluator_pb2.RunResponse = call.result()
        except grpc.RpcError as error:
            failure = errors.from_rpc_error(error)
            for entry in entries:
                entry.lose(failure)
            if any(entry.outputs for entry in entries):
                self.connection.failures.note(failure)
        else:
            for entry, result in zip(entries, reply.results, strict=True):
                entry.finish(result)
                if entry.failure is not None and entry.outputs:
                    self.connection.failures.note(entry.failure)
        self._sent = None
