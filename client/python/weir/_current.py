"""Which connection is meant where none is named."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from weir import errors

if TYPE_CHECKING:
    from weir._connection import Connection

# In the order in which they were opened.
open_connections: list[Connection] = []


def current_task() -> asyncio.Task[object] | None:
    """That of asyncio which runs; None where none does."""
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None


def current_owner() -> object:
    """Whose what is asked for here is: the task that runs, else the thread by
    its number."""
    return current_task() or threading.get_ident()


def current_connection() -> Connection:
    """The one that was opened last and is not closed."""
    try:
        return open_connections[-1]
    except IndexError:
        raise errors.UnusableConnection(
            "there is no connection: call weir.connect() first") from None
