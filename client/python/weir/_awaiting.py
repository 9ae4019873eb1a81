"""What tasks of asyncio wait for: calls that are under way, without holding up
the loop, a thread or the interpreter.

Commands go on by the pipeline of the thread whose loop it is, in their order;
what is waited for goes by calls of its own, so that no task waits for what
another one waits for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import grpc

from weir import errors
from weir._channel import Call
from weir._profile import waiting
from weir._proto import evaluator_pb2
from weir._record import Entry

if TYPE_CHECKING:
    from weir._connection import Connection


async def until_done(call: Call, until: float | None = None) -> None:
    """Returns when a call has ended, however it did, or at `until`, by
    time.monotonic()."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    def tell(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(end)

    call.add_done_callback(tell)
    left = None if until is None else max(0.0, until - time.monotonic())
    with waiting():
        await asyncio.wait((over,), timeout=left)


async def result_of(call: Call) -> Any:
    """A call's reply; WeirError if there is none. A task that is cancelled
    cancels it."""
    try:
        await until_done(call)
    except asyncio.CancelledError:
        call.cancel()
        raise
    try:
        return call.result()
    except grpc.RpcError as error:
        raise errors.from_rpc_error(error) from None


async def run(connection: Connection, entries: Sequence[Entry]) -> None:
    """Commands by themselves, behind all that this thread asked for; each entry
    has its result then, or why there is none."""
    await connection.pipeline().settle_in_task()
    call = connection.channel.start(
        "Evaluator/Run", evaluator_pb2.RunRequest(
            commands=[entry.command for entry in entries]),
        evaluator_pb2.RunResponse)
    reply: evaluator_pb2.RunResponse = await result_of(call)
    for entry, result in zip(entries, reply.results, strict=True):
        entry.finish(result)


class Connecting:
    """A connection that is being opened: `await` it, or use it as `async with`,
    which closes it."""

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        self._target = target
        self._options = options
        self._opened: Connection | None = None
        self._lock = threading.Lock()
        self._given_up = False

    async def _open(self) -> Connection:
        try:
            return await asyncio.to_thread(self._open_here)
        except asyncio.CancelledError:
            # The thread goes on, and nobody has what it opens.
            with self._lock:
                self._given_up = True
                opened = self._opened
            if opened is not None:
                threading.Thread(target=opened.close).start()
            raise

    def _open_here(self) -> Connection:
        # pylint: disable-next=import-outside-toplevel,cyclic-import
        from weir._connection import connect
        made = connect(self._target, **self._options)
        with self._lock:
            given_up = self._given_up
            if not given_up:
                self._opened = made
        if given_up:
            made.close()
        return made

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._open().__await__()

    async def __aenter__(self) -> Connection:
        return await self._open()

    async def __aexit__(self, kind: type[BaseException] | None,
                        error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        if self._opened is not None:
            await self._opened.aclose()


def aconnect(target: str = "127.0.0.1:8001", **options: Any) -> Connecting:
    """As `weir.connect`, with its options, in a task of asyncio."""
    return Connecting(target, options)
