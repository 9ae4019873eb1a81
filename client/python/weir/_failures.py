"""Who was told of what failed: so that nothing is silent."""

from __future__ import annotations

import collections

from weir.errors import WeirError

# The server knows so many works that are done.
_MOST = 1000


class Failures:
    """Of one connection. Thread-safe, as its deques are."""

    def __init__(self) -> None:
        self._noted: collections.deque[str] = collections.deque(maxlen=_MOST)
        self._told: collections.deque[str] = collections.deque(maxlen=_MOST)
        self._works: collections.deque[int] = collections.deque(maxlen=_MOST)

    def watch(self, work: int) -> None:
        """It may fail when nobody looks."""
        self._works.append(work)

    def note(self, failure: WeirError) -> None:
        """Something failed."""
        self._noted.append(_cause(failure))

    def tell(self, failure: WeirError) -> None:
        """It is raised, and all that failed for the same cause with it."""
        self._told.append(_cause(failure))

    def watched(self) -> list[int]:
        """The works that may have failed."""
        return list(self._works)

    def untold(self) -> list[str]:
        """What nobody was told of."""
        return list(dict.fromkeys(
            cause for cause in self._noted if cause not in self._told))


def _cause(failure: WeirError) -> str:
    """Without the works that failed because of it."""
    message = failure.message
    for before in ("which failed: ", "has failed: "):
        message = message.rpartition(before)[2]
    return f"{failure.code}: {message}"
