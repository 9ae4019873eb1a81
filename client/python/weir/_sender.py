"""The thread of a connection that sends what other threads leave behind."""

from __future__ import annotations

import queue
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weir._connection import Connection


def send_on(connection: weakref.ref[Connection],
            woken: queue.SimpleQueue[bool], send_after: float,
            renew_after: float) -> None:
    """Sends what waits a moment after it began to, and keeps the space while
    the process lives."""
    renewal = time.monotonic() + renew_after
    due: float | None = None
    while True:
        now = time.monotonic()
        until = renewal if due is None else min(renewal, due)
        try:
            if not woken.get(timeout=max(0, until - now)):
                return
            if due is None:
                due = time.monotonic() + send_after
            continue
        except queue.Empty:
            now = time.monotonic()
        there = connection()
        if there is None:
            return
        if due is not None and now >= due:
            due = None
            there.is_woken = False  # for what comes meanwhile
            there.send_what_waits()
        if now >= renewal:
            renewal = now + renew_after
            there.send_what_waits()
            there.renew()
        del there
