"""Commands on their way: what a thread asks for is collected and goes to the
server in batches, in its order: by the connection's session, or by calls of
which one is under way at a time."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from collections.abc import Callable, Sequence
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
_MOST_COMMANDS = 1024 - 16  # and Waits
# Works of a Wait, and Waits for one each of a batch.
_MOST_AWAITED = 1024
_MOST_APART = 512
# Of a session, that are not answered.
_MOST_BATCHES = 4
# What a task of asyncio may leave waiting before it holds up its loop.
_MOST_IN_TASK = 4096
_MOST_BYTES_IN_TASK = 64 << 20
# Codes of calls that no space has any more.
_GONE = ("NOT_FOUND", "UNAUTHENTICATED")


def _wait_for(works: Sequence[int]) -> Entry:
    """For room in the space: for the end of works, however they end."""
    wait = command_pb2.Wait(works=works)
    return Entry(command_pb2.Command(wait=wait))


def _check_time(end: float | None) -> None:
    """DeadlineExceeded if it is over."""
    if end is not None and time.monotonic() >= end:
        raise errors.DeadlineExceeded(
            "the block's time was over before the server answered")


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
        # What was freed by a call that failed.
        self._unfreed: list[command_pb2.Command] = []
        # How many were taken from there to be sent, and are answered.
        self._taken = 0
        self._answered = 0
        # Batches that were not answered, with how many were taken for them,
        # and how the last of them went.
        self._sent: collections.deque[tuple[Call, list[Entry], int]] = (
            collections.deque())
        self._sent_by_session = False
        # Whether nothing may be sent before these are answered.
        self._held = False
        # Works of batches before, which may not be done.
        self._unfinished: list[int] = []
        # Of those, what was waited for together, and has to be one by one.
        self._apart: list[int] = []
        # How many calls of its owner are sending all that waits.
        self._sending = 0

    def give_up(self, command: command_pb2.Command) -> None:
        """Frees something behind all that was asked for, with the next batch,
        and again with a later one should its call fail. Never blocks."""
        self._entries.append(command)

    def add(self, entry: Entry) -> None:
        """Sends it with others, soon."""
        entry.end = current_end()
        with self._lock:
            if self._waiting and self._bytes + entry.size > _MOST_BYTES:
                self._send_some()
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
            self._sending += 1
            try:
                while self._entries:
                    self.connection.channel.check_usable()
                    while not self._may_start():
                        self._finish_first()
                    self._start_batch()
            finally:
                self._sending -= 1

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
            self._sending += 1
            try:
                self.send()
                self._finish_sent()
            finally:
                self._sending -= 1

    async def settle_in_task(self) -> None:
        """As `settle`, without holding up other tasks of the thread, and
        without waiting for what they ask for meanwhile. DeadlineExceeded at the
        end of the block's time."""
        # pylint: disable-next=import-outside-toplevel,cyclic-import
        from weir._awaiting import until_done
        end = current_end()
        wanted: int | None = None
        while True:
            # Another thread may be waiting with it.
            while not self._lock.acquire(blocking=False):
                _check_time(end)
                await asyncio.sleep(0.001)
            try:
                if wanted is None:
                    wanted = self._taken + len(self._entries)
                self._finish_done()
                while self._entries and self._may_start():
                    self.connection.channel.check_usable()
                    self._start_batch()
                if self._answered >= wanted or not self._sent:
                    return
                first = self._sent[0][0]
            finally:
                self._lock.release()
            _check_time(end)
            await until_done(first, end)

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
            # Its owner may be adding to it, and will not wake anybody.
            if not self._sending:
                when_done(None)
            return
        try:
            self._finish_done()
            if (self._entries or self._unfreed) and self._may_start():
                self._start_batch()
            if self._waiting and self._sent:
                self._sent[0][0].add_done_callback(when_done)
        finally:
            self._lock.release()

    def _next(self) -> Entry | None:
        """What is to be sent first of what was asked for."""
        # Not by an iterator: finalizers append meanwhile.
        for place in range(len(self._entries) if self._waiting else 0):
            item = self._entries[place]
            if isinstance(item, Entry):
                return item
        return None

    def _by_session(self, entry: Entry | None) -> bool:
        """What has a deadline, or is large, goes by a call of its own; None:
        what is freed alone."""
        session = self.connection.session
        if session is None or session.is_lost:
            return False
        if entry is None:
            return True
        most = min(_MOST_BYTES, self.connection.max_message_bytes // 4)
        return entry.end is None and entry.size <= most

    def _may_start(self) -> bool:
        """Whether the next batch may be sent behind those that are not answered
        yet."""
        if not self._sent:
            return True
        return (not self._held and self._sent_by_session
                and self._by_session(self._next())
                and len(self._sent) < _MOST_BATCHES)

    def _start_batch(self) -> None:
        window = self.connection.works_of_a_pipeline()
        # What is freed goes with what was asked for beside it.
        self._entries += self._unfreed
        self._unfreed = []
        first = self._next()
        by_session = self._by_session(first)
        end = first.end if first is not None else None
        count = 0
        # A wait for several ends with the first that failed.
        entries = [_wait_for([work]) for work in self._apart[:_MOST_APART]]
        del self._apart[:_MOST_APART]
        works: list[int] = []
        size = 0
        most = window - len(self._unfinished) if by_session else window
        while self._entries and len(entries) < _MOST_COMMANDS:
            if len(works) >= most:
                break
            item = self._entries[0]
            if isinstance(item, command_pb2.Command):
                self._entries.popleft()
                count += 1
                entries.append(Entry(item, is_free=True))
                continue
            if self._by_session(item) != by_session or item.end != end:
                break
            size += item.size
            if entries and size > _MOST_BYTES:
                break
            self._entries.popleft()
            count += 1
            entries.append(item)
            self._waiting -= 1
            self._bytes -= item.size
            for record in item.outputs:
                record.state = "sent"
            if item.work:
                works.append(item.work)
        if len(self._unfinished) + len(works) > window:
            # The server holds so many works of a space and no more.
            entries[:0] = self._wait_for_unfinished()
        self._unfinished += works
        self._taken += count
        batches = [entries]
        if by_session and len(self._unfinished) > window * 3 // 4:
            # Nothing more is sent before they are done.
            batches.append(self._wait_for_unfinished())
        try:
            calls = self._start(batches, by_session, end)
        except Exception as error:  # pylint: disable=broad-exception-caught
            # Nobody is to wait for what never went.
            lost = error if isinstance(error, errors.WeirError) else (
                errors.Unavailable(f"it could not be sent: {error}"))
            self._answered += count
            self._finish(entries, [lost] * len(entries))
            if isinstance(error, errors.UnusableConnection):
                raise
            return
        counts = [count, *[0] * (len(batches) - 1)]
        self._sent += zip(calls, batches, counts, strict=True)
        self._sent_by_session = by_session
        self._held = len(batches) > 1

    def _wait_for_unfinished(self) -> list[Entry]:
        works, self._unfinished = self._unfinished, []
        return [_wait_for(works[i:i + _MOST_AWAITED])
                for i in range(0, len(works), _MOST_AWAITED)]

    def _start(self, batches: list[list[Entry]], by_session: bool,
               end: float | None) -> Sequence[Call]:
        """Sends them together, to be done by `end`; by a call of their own
        there is one."""
        channel = self.connection.channel
        commands = [[entry.command for entry in batch] for batch in batches]
        if not by_session or self.connection.session is None:
            return [channel.start(
                "Evaluator/Run", evaluator_pb2.RunRequest(commands=commands[0]),
                evaluator_pb2.RunResponse, seconds_until(end, channel.timeout))]
        for batch in commands:
            for command in batch:
                # Commands of a session have no deadline of a call's.
                if command.HasField("wait") and not command.wait.timeout_ns:
                    command.wait.timeout_ns = int(channel.timeout * 1e9)
        return self.connection.session.start(commands, channel.timeout)

    def _finish_sent(self) -> None:
        while self._sent:
            self._finish_first()

    def _finish_done(self) -> None:
        """Those that can be finished without a wait."""
        while self._sent and self._sent[0][0].done():
            self._finish_first()

    def _finish_first(self) -> None:
        call, entries, count = self._sent[0]
        try:
            with waiting():
                results = call.result().results
        except grpc.RpcError as error:
            results = [errors.from_rpc_error(error)] * len(entries)
        self._sent.popleft()
        self._answered += count
        self._finish(entries, results)

    def _finish(self, entries: Sequence[Entry],
                results: Sequence[command_pb2.CommandResult |
                                  errors.WeirError]) -> None:
        noted: errors.WeirError | None = None
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, errors.WeirError):
                entry.lose(result)
                if entry.is_free and result.code not in _GONE:
                    self._unfreed.append(entry.command)
            else:
                entry.finish(result)
                together = entry.command.wait.works
                if len(together) > 1 and result.HasField("error"):
                    self._apart += together
            if entry.failure is not None and entry.outputs and (
                    entry.failure is not noted):
                noted = entry.failure
                self.connection.failures.note(noted)
