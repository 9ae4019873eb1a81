"""Timelines: numbers that only grow, for works and callers to move and to wait
for."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from weir import _awaiting
from weir._current import current_connection
from weir._proto import command_pb2, tensor_pb2
from weir._record import Entry

if TYPE_CHECKING:
    from weir._connection import Connection


class Point(NamedTuple):
    """A moment: reached once the timeline's value is at least `value`."""

    timeline: Timeline
    value: int

    def to_wire(self) -> tensor_pb2.Point:
        return tensor_pb2.Point(timeline=self.timeline.number,
                                value=self.value)


class Timeline:
    """A timeline of the connection's space, at 0. Works reach its points with
    `signal=`, and start after them with `after=`. Given up when nobody refers
    to it, nor to a point of it, and at the end of its `with` block; works that
    were asked for by then go on, and one that waits for what nobody signals any
    more ends at its deadline."""

    def __init__(self, *, connection: Connection | None = None) -> None:
        self.connection = connection or current_connection()
        self.number = self.connection.new_number()
        self.connection.has_timelines = True
        self._value = 0
        self._pipeline = self.connection.pipeline()
        self._run(timeline_create=command_pb2.TimelineCreate(
            timeline=self.number))
        self._is_open = True

    def at(self, value: int) -> Point:
        """The moment at which it has this value."""
        return Point(self, value)

    @property
    def value(self) -> int:
        """The greatest value that this object signaled or saw reached. Asks
        nobody: a work may have moved the timeline further."""
        return self._value

    def signal(self, value: int) -> None:
        """Moves it to `value`, at once. FailedPrecondition if that is not more
        than it has."""
        self._run(timeline_signal=command_pb2.TimelineSignal(
            timeline=self.number, value=value))
        self._value = max(self._value, value)

    def wait(self, value: int, timeout: float | None = None) -> None:
        """Returns when it is at `value` or beyond; DeadlineExceeded after
        `timeout` seconds, or the call's. Fails as a work that was to reach it
        failed."""
        # Others may need what was asked for before to let this end.
        self.connection.pipeline().settle()
        wait = command_pb2.Wait(points=[self.at(value).to_wire()])
        if timeout is not None:
            wait.timeout_ns = max(1, int(timeout * 1e9))
        self._run(wait=wait)
        self._value = max(self._value, value)

    async def reached(self, value: int, timeout: float | None = None) -> None:
        """As `wait`, in a task of asyncio."""
        wait = command_pb2.Wait(points=[self.at(value).to_wire()])
        if timeout is not None:
            wait.timeout_ns = max(1, int(timeout * 1e9))
        entry = Entry(command_pb2.Command(wait=wait))
        await _awaiting.run(self.connection, [entry])
        if entry.failure is not None:
            raise entry.failure.again()
        self._value = max(self._value, value)

    def delete(self) -> None:
        """Ends it: what waits for a value beyond fails with Cancelled."""
        deleted = self._run(timeline_delete=command_pb2.TimelineDelete(
            timeline=self.number))
        self._is_open = False
        self._value = deleted.timeline_delete.value

    def close(self) -> None:
        """Gives it up, with the next message. Works that were asked for go
        on."""
        if not self._is_open:
            return
        self._is_open = False
        # Behind what this thread asked for.
        self.connection.pipeline().give_up(self._number_only())

    def _number_only(self) -> command_pb2.Command:
        return command_pb2.Command(timeline_delete=command_pb2.TimelineDelete(
            timeline=self.number, number_only=True))

    def __enter__(self) -> Timeline:
        return self

    def __exit__(self, kind: type[BaseException] | None,
                 error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_is_open", False):
            self._pipeline.give_up(self._number_only())

    def _run(self, **command: object) -> command_pb2.CommandResult:
        return self.connection.pipeline().run(
            Entry(command_pb2.Command(**command)))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        state = "" if self._is_open else ", closed"
        return f"<weir.Timeline {self.number}, seen at {self._value}{state}>"
