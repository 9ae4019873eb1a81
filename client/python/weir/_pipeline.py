"""Commands on their way: what a thread asks for is collected and goes to the
server in batches, in its order: by the connection's session, or by calls of
which one is under way at a time."""

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
# Of a session, that are not answered.
_MOST_BATCHES = 4
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
        # Batches that were not answered, and how the last of them went.
        self._sent: collections.deque[tuple[Call, list[Entry]]] = (
            collections.deque())
        self._sent_by_session = False
        # Whether nothing may be sent before these are answered.
        self._held = False
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
        """Sends what waits. Waits only for batches before."""
        with self._lock:
            while self._entries:
                self.connection.channel.check_usable()
                while not self._may_start():
                    self._finish_first()
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
                self._finish_done()
                while self._entries and self._may_start():
                    self.connection.channel.check_usable()
                    self._start_batch()
                if not self._sent:
                    return
                first = self._sent[0][0]
            finally:
                self._lock.release()
            await until_done(first)

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
            self._finish_done()
            if self._entries and self._may_start():
                self._start_batch()
            if self._waiting and self._sent:
                self._sent[0][0].add_done_callback(when_done)
        finally:
            self._lock.release()

    def _by_session(self, item: Entry | command_pb2.Command) -> bool:
        """What has a deadline, or is large, goes by a call of its own."""
        session = self.connection.session
        if session is None or session.is_lost or self._end is not None:
            return False
        most = min(_MOST_BYTES, self.connection.max_message_bytes // 4)
        return isinstance(item, command_pb2.Command) or item.size <= most

    def _may_start(self) -> bool:
        """Whether the next batch may be sent behind those that are not answered
        yet."""
        if not self._sent:
            return True
        return (not self._held and self._sent_by_session
                and self._by_session(self._entries[0])
                and len(self._sent) < _MOST_BATCHES)

    def _start_batch(self) -> None:
        window = self.connection.works_of_a_pipeline()
        by_session = self._by_session(self._entries[0])
        entries: list[Entry] = []
        works: list[int] = []
        size = 0
        most = window - len(self._unfinished) if by_session else window
        while self._entries and len(entries) < _MOST_COMMANDS:
            if len(works) >= most:
                break
            item = self._entries[0]
            if self._by_session(item) != by_session:
                break
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
            entries.insert(0, self._wait_for_unfinished())
        self._unfinished += works
        batches = [entries]
        if by_session and len(self._unfinished) > window * 3 // 4:
            # Nothing more is sent before they are done.
            batches.append([self._wait_for_unfinished()])
        self._start(batches, by_session)
        self._held = len(batches) > 1

    def _wait_for_unfinished(self) -> Entry:
        wait = command_pb2.Wait(works=self._unfinished)
        self._unfinished = []
        return Entry(command_pb2.Command(wait=wait))

    def _start(self, batches: list[list[Entry]], by_session: bool) -> None:
        """Sends them together; by a call of their own there is one."""
        channel = self.connection.channel
        commands = [[entry.command for entry in batch] for batch in batches]
        self._sent_by_session = by_session
        if not by_session or self.connection.session is None:
            self._sent.append((channel.start(
                "Evaluator/Run", evaluator_pb2.RunRequest(commands=commands[0]),
                evaluator_pb2.RunResponse,
                seconds_until(self._end, channel.timeout)), batches[0]))
            return
        for batch in commands:
            for command in batch:
                # Commands of a session have no deadline of a call's.
                if command.HasField("wait") and not command.wait.timeout_ns:
                    command.wait.timeout_ns = int(channel.timeout * 1e9)
        self._sent += zip(
            self.connection.session.start(commands, channel.timeout), batches,
            strict=True)

    def _finish_sent(self) -> None:
        while self._sent:
            self._finish_first()

    def _finish_done(self) -> None:
        """Those that can be finished without a wait."""
        while self._sent and self._sent[0][0].done():
            self._finish_first()

    def _finish_first(self) -> None:
        call, entries = self._sent[0]
        try:
            with waiting():
                results = call.result().results
        except grpc.RpcError as error:
            results = [errors.from_rpc_error(error)] * len(entries)
        self._sent.popleft()
        noted: errors.WeirError | None = None
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, errors.WeirError):
                entry.lose(result)
            else:
                entry.finish(result)
            if entry.failure is not None and entry.outputs and (
                    entry.failure is not noted):
                noted = entry.failure
                self.connection.failures.note(noted)
