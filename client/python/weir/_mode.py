"""When an evaluation returns, and what says so."""

from __future__ import annotations

import contextvars
import enum
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from weir._connection import Connection
    from weir._context import EvalContext
    from weir._device import Device


class EvalMode(enum.IntEnum):
    """Each promises all that the lower ones do. A mode is a context manager,
    for what is evaluated in its block by this thread or task."""

    # Runs when a result is needed.
    DEFERRED = 1
    # Returns at once.
    EAGER = 2
    # Returns when the host's work and all launches are done.
    SYNC_CPU = 3
    # Returns when the completion of the work was seen.
    SYNC_FULL = 4

    # As DALI writes them.
    deferred = DEFERRED
    eager = EAGER
    default = EAGER
    sync_cpu = SYNC_CPU
    sync_full = SYNC_FULL

    def __enter__(self) -> EvalMode:
        push(None, self)
        return self

    def __exit__(self, kind: type[BaseException] | None,
                 error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        pop()


class Frame(NamedTuple):
    """One block: its context, if it has one, its mode, and the device and the
    connection that it names, if it does."""

    context: EvalContext | None
    mode: EvalMode
    device: Device | None
    connection: Connection | None


# Of this thread, or of this task of asyncio.
_STACK: contextvars.ContextVar[tuple[Frame, ...]] = contextvars.ContextVar(
    "weir blocks", default=())


def push(context: EvalContext | None, mode: EvalMode,
         device: Device | None = None,
         connection: Connection | None = None) -> None:
    _STACK.set((*_STACK.get(), Frame(context, mode, device, connection)))


def pop() -> None:
    _STACK.set(_STACK.get()[:-1])


def current_mode() -> EvalMode:
    """Of the innermost block."""
    stack = _STACK.get()
    return stack[-1].mode if stack else EvalMode.EAGER


def innermost_context() -> EvalContext | None:
    """Of the innermost block that has one, whoever entered that."""
    for frame in reversed(_STACK.get()):
        if frame.context is not None:
            return frame.context
    return None


def context_to_use(connection: Connection) -> EvalContext | None:
    """That in which a connection is to be asked for something. Aborted, reason
    CONTEXT_BUSY, if the block was entered by another thread or task."""
    context = innermost_context()
    if context is None or context.connection is not connection:
        return None
    context.check_entered()
    return context


def current_device() -> Device | None:
    """That which the innermost block names that names one, or has a context."""
    for frame in reversed(_STACK.get()):
        if frame.device is not None:
            return frame.device
        if frame.context is not None:
            return frame.context.device
    return None


def block_connection() -> Connection | None:
    """That which the innermost block names that names one, or has a
    context."""
    for frame in reversed(_STACK.get()):
        if frame.connection is not None:
            return frame.connection
        if frame.context is not None:
            return frame.context.connection
    return None
