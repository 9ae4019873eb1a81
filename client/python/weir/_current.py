"""Which connection is meant where none is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir import errors

if TYPE_CHECKING:
    from weir._connection import Connection

# In the order in which they were opened.
open_connections: list[Connection] = []


def current_connection() -> Connection:
    """The one that was opened last and is not closed."""
    try:
        return open_connections[-1]
    except IndexError:
        raise errors.UnusableConnection(
            "there is no connection: call weir.connect() first") from None
