"""Contexts: works in one run in the order in which they were asked for."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING

from weir import errors
from weir._current import current_connection, current_owner
from weir._device import Device, name_of
from weir._mode import EvalMode, innermost_context, pop, push
from weir._proto import command_pb2
from weir._record import Entry

if TYPE_CHECKING:
    from weir._connection import Connection


class EvalContext:
    """A context in the connection's space, and the block in which it is used.
    May be entered again, also within itself, but by one thread, or task of
    asyncio, at a time: another one is refused at once (Aborted, reason
    CONTEXT_BUSY).

    The context is that of the thread or task alone that entered the block. A
    task that is made in the block, and a thread of asyncio.to_thread, has the
    block's mode, device and deadline, and is refused in the same way when it
    asks for what would be in the context, before and after the block ends: it
    is to enter a context of its own. (asyncio.wait_for makes a task of what it
    waits for before Python 3.12: pass `timeout`, or use weir.deadline.)"""

    def __init__(self, mode: EvalMode = EvalMode.EAGER, *,
                 device: Device | str | None = None,
                 rng_seed: int | None = None,
                 connection: Connection | None = None) -> None:
        self.connection = connection or current_connection()
        self.connection.check_offered(mode)
        self.mode = mode
        self.number = self.connection.new_number()
        self._owner: object = None  # a thread's number, or a task
        self._entered = 0
        self._lock = threading.Lock()
        self._pipeline = self.connection.pipeline()
        created = self._pipeline.run(Entry(command_pb2.Command(
            context_create=command_pb2.ContextCreate(
                context=self.number, device=name_of(device),
                mode=int(mode),  # type: ignore[arg-type]
                rng_seed=rng_seed)))).context_create
        self._closed = False
        # Where its works run.
        self.device = self.connection.device_of(created.device_uuid)
        # Where its random numbers begin.
        self.rng_seed = created.rng_seed

    @staticmethod
    def current() -> EvalContext | None:
        """That of the innermost block that has one; None outside of all, and
        where another thread or task entered that."""
        context = innermost_context()
        return context if context and context._is_mine() else None

    def __enter__(self) -> EvalContext:
        me = current_owner()
        with self._lock:
            if self._closed:
                raise errors.NotFound(f"context {self.number} is closed",
                                      reason="CONTEXT_NOT_FOUND")
            if self._entered and self._owner != me:
                raise errors.Aborted(
                    f"context {self.number} is in use by another thread or "
                    "task: give each a context of its own",
                    reason="CONTEXT_BUSY")
            self._owner = me
            self._entered += 1
        push(self, self.mode)
        return self

    def __exit__(self, kind: type[BaseException] | None,
                 error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        pop()
        with self._lock:
            self._entered -= 1
            if not self._entered:
                self._owner = None

    def _is_mine(self) -> bool:
        # Only who is asking could make it so meanwhile.
        return self._owner == current_owner()

    def check_entered(self) -> None:
        """Aborted, reason CONTEXT_BUSY, if not by this thread or task."""
        if not self._is_mine():
            raise errors.Aborted(
                f"context {self.number} is that of the thread or task that "
                "entered it, and not of tasks and threads that it made since: "
                "enter another one here", reason="CONTEXT_BUSY")

    def close(self) -> None:
        """Gives it up. Its works go on."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.connection.pipeline().run(Entry(command_pb2.Command(
            context_close=command_pb2.ContextClose(context=self.number))))

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._pipeline.give_up(command_pb2.Command(
                context_close=command_pb2.ContextClose(context=self.number)))

    def __repr__(self) -> str:
        return (f"<weir.EvalContext {self.number} on {self.device}, "
                f"{self.mode.name}>")
