"""How long calls may take: of a block of code."""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator

# By time.monotonic().
_END: contextvars.ContextVar[float | None] = contextvars.ContextVar(
    "weir deadline", default=None)


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """What is asked for in the block, and what was evaluated in it, is to be
    done `seconds` from now: later it fails with DEADLINE_EXCEEDED. Blocks
    within others can only shorten that. Calls outside have the connection's
    `timeout` each."""
    end = time.monotonic() + seconds
    outer = _END.get()
    token = _END.set(end if outer is None else min(outer, end))
    try:
        yield
    finally:
        _END.reset(token)


def current_end() -> float | None:
    """When the innermost block's time is up; None outside of all."""
    return _END.get()


def seconds_until(end: float | None, timeout: float) -> float:
    """What is left until `end`, at most `timeout`, at least a moment."""
    if end is None:
        return timeout
    return min(timeout, max(0.001, end - time.monotonic()))
