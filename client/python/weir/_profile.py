"""Where the time of a block went, from the reports of its works."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from weir import errors
from weir._proto import (
    command_pb2,
    evaluation_pb2,
    evaluator_pb2,
    sync_report_pb2,
)

if TYPE_CHECKING:
    from weir._connection import Connection

# The server knows so many works that are done.
_MOST_WORKS = 1000
_MOST_ROWS = 20
# Of a connection that was closed in the block nothing is known any more.
_UNREACHABLE = (errors.WeirError, errors.UnusableConnection)


@dataclasses.dataclass(frozen=True, slots=True)
class WorkTime:
    """One work. Seconds."""

    # The operator, or the model.
    name: str
    # Where the program called it, as "file:line".
    call_site: str
    # From its arrival at the server to its launch.
    queue: float
    # From there until its completion was seen.
    device: float
    # Of sync_report.proto's WorkState.
    state: int


class Profile:
    """A block that is measured. All is there when the block has ended, which
    it does when its works are done.

    seconds: of the whole block.
    client: of them those in which the program did not wait for the server.
    queue: in which works waited at the server and none ran, by its clock.
    device: in which one ran.
    wire: what is left of the waiting.
    works: each, but of connections that were closed in the block; omitted: how
      many more there were before these.
    calls: messages to the server; sent_bytes: about what was in them.

    The program may go on while works run, so that the parts may be more than
    the whole. Works of other threads are not counted, those of tasks that the
    block made are."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.client = 0.0
        self.wire = 0.0
        self.queue = 0.0
        self.device = 0.0
        self.works: Sequence[WorkTime] = ()
        self.omitted = 0
        self.calls = 0
        self.sent_bytes = 0
        self._waited = 0.0
        self._waiting = 0  # tasks, or threads that work for them
        self._waiting_since = 0.0
        self._lock = threading.Lock()
        self._began = 0.0
        self._connections: dict[int, Connection] = {}
        self._calls_before: dict[int, int] = {}
        self._asked: collections.deque[tuple[int, int, str, str]] = (
            collections.deque(maxlen=_MOST_WORKS))
        self._token: contextvars.Token[tuple[Profile, ...]] | None = None

    # Of the package.

    def note_bytes(self, connection: Connection, size: int) -> None:
        """Something goes to the server."""
        if id(connection) not in self._connections:
            self._connections[id(connection)] = connection
            self._calls_before[id(connection)] = connection.calls
        self.sent_bytes += size

    def note(self, connection: Connection, work: int, name: str,
             call_site: str, size: int) -> None:
        """A work was asked for."""
        self.note_bytes(connection, size)
        if len(self._asked) == _MOST_WORKS:
            self.omitted += 1
        self._asked.append((id(connection), work, name, call_site))

    def begin_wait(self) -> None:
        """The program waits."""
        with self._lock:
            if not self._waiting:
                self._waiting_since = time.perf_counter()
            self._waiting += 1

    def end_wait(self) -> None:
        """It waits no more."""
        with self._lock:
            self._waiting -= 1
            if not self._waiting:
                self._waited += time.perf_counter() - self._waiting_since

    def __enter__(self) -> Profile:
        if self._token is not None:
            raise RuntimeError("a profile is of one block")
        self._token = _ACTIVE.set((*_ACTIVE.get(), self))
        self._began = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None,
                 error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        assert self._token is not None
        try:
            for key, connection in self._connections.items():
                with contextlib.suppress(*_UNREACHABLE):
                    connection.flush()
                with contextlib.suppress(*_UNREACHABLE):
                    _await_all(connection, [each[1] for each in self._asked
                                            if each[0] == key])
        finally:
            _ACTIVE.reset(self._token)
        self.seconds = time.perf_counter() - self._began
        self.client = max(0.0, self.seconds - self._waited)
        found: list[tuple[WorkTime, tuple[int, int, int]]] = []
        for key, connection in self._connections.items():
            self.calls += connection.calls - self._calls_before[key]
            with contextlib.suppress(*_UNREACHABLE):
                found += _ask(connection,
                              [each for each in self._asked if each[0] == key])
        self.works = tuple(each for each, _ in found)
        spans = [span for _, span in found]
        self.device = _covered((launched, done)
                               for _, launched, done in spans if launched)
        self.queue = max(0.0, _covered(
            (received, done) for received, _, done in spans if done
        ) - self.device)
        self.wire = max(0.0, self._waited - self.queue - self.device)

    def __str__(self) -> str:
        rows = [f"{name:<8}{seconds * 1e3:10.3f} ms" for name, seconds in (
            ("block", self.seconds), ("client", self.client),
            ("wire", self.wire), ("queue", self.queue),
            ("device", self.device))]
        rows.append(f"{len(self.works) + self.omitted} works in {self.calls} "
                    f"calls, {self.sent_bytes} bytes")
        sums: dict[tuple[str, str], list[float]] = {}
        for work in self.works:
            row = sums.setdefault((work.name, work.call_site), [0, 0.0, 0.0])
            row[0] += 1
            row[1] += work.queue
            row[2] += work.device
        longest = sorted(sums.items(), key=lambda each: -each[1][2])
        for (name, site), (count, queue, device) in longest[:_MOST_ROWS]:
            rows.append(f"{name} x {count:.0f}: {device * 1e3:.3f} ms, after "
                        f"{queue * 1e3:.3f} ms of waiting ({site})")
        return "\n".join(rows)

    def __repr__(self) -> str:
        return (f"<weir.Profile of {self.seconds * 1e3:.3f} ms: client "
                f"{self.client * 1e3:.3f}, wire {self.wire * 1e3:.3f}, queue "
                f"{self.queue * 1e3:.3f}, device {self.device * 1e3:.3f}>")


# Those of the blocks around, of this thread or task.
_ACTIVE: contextvars.ContextVar[tuple[Profile, ...]] = contextvars.ContextVar(
    "weir profiles", default=())


def profile() -> Profile:
    """Measures a block: `with weir.profile() as profile: ...`, and then
    `print(profile)`."""
    return Profile()


def active() -> tuple[Profile, ...]:
    """The profiles of the blocks around."""
    return _ACTIVE.get()


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """A block in which the program waits for the server."""
    profiles = _ACTIVE.get()
    for each in profiles:
        each.begin_wait()
    try:
        yield
    finally:
        for each in profiles:
            each.end_wait()


def _await_all(connection: Connection, works: Sequence[int]) -> None:
    """Returns when all are done, however they ended."""
    if works:
        connection.channel.call("Evaluator/Run", evaluator_pb2.RunRequest(
            commands=[command_pb2.Command(wait=command_pb2.Wait(works=[each]))
                      for each in works]), evaluator_pb2.RunResponse)


def _ask(connection: Connection, asked: Sequence[tuple[int, int, str, str]],
         ) -> Iterator[tuple[WorkTime, tuple[int, int, int]]]:
    """Each work, and when it arrived, was launched and was done, in nanoseconds
    of the server's clock; 0 for what did not happen."""
    if not asked:
        return
    queries = evaluator_pb2.RunRequest(commands=[
        command_pb2.Command(query=command_pb2.Query(
            work=work, report=evaluation_pb2.REPORT_LEVEL_FULL))
        for _, work, _, _ in asked])
    reply = connection.channel.call("Evaluator/Run", queries,
                                    evaluator_pb2.RunResponse)
    for (_, _, name, site), result in zip(asked, reply.results, strict=True):
        if result.HasField("error"):  # it was refused
            yield (WorkTime(name, site, 0.0, 0.0,
                            sync_report_pb2.WORK_STATE_ERROR), (0, 0, 0))
            continue
        report = result.query.report
        times = report.details.times
        yield (WorkTime(name, site, report.queue_ns / 1e9,
                        report.execution_ns / 1e9, result.query.state),
               (times.received_ns, times.scheduled_ns, times.completed_ns))


def _covered(spans: Iterable[tuple[int, int]]) -> float:
    """Seconds in which there was one or more of these."""
    covered, end = 0, 0
    for start, stop in sorted(spans):
        covered += max(0, stop - max(start, end))
        end = max(end, stop)
    return covered / 1e9
