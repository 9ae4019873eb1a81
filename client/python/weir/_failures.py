"""Who was told of what failed: so that nothing is silent."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from weir.errors import WeirError

# The server knows so many works that are done.
_MOST = 1000


class Failures:
    """Of one connection. Thread-safe, as its deques are. A failure's message
    ends with that of the work whose failure it is."""

    def __init__(self) -> None:
        self._noted: collections.deque[WeirError] = collections.deque(
            maxlen=_MOST)
        self._told: collections.deque[str] = collections.deque(maxlen=_MOST)
        self._works: collections.deque[int] = collections.deque(maxlen=_MOST)
        self._told_works: collections.deque[int] = collections.deque(
            maxlen=_MOST)

    def watch(self, work: int) -> None:
        """It may fail when nobody looks."""
        self._works.append(work)

    def note(self, failure: WeirError) -> None:
        """Something failed."""
        self._noted.append(failure)

    def tell(self, failure: WeirError, works: Sequence[int] = ()) -> None:
        """It is raised, and all that failed for the same cause with it: these
        works, if it says no cause."""
        self._told.append(failure.message)
        self._told_works.extend(works)

    def watched(self) -> list[int]:
        """The works that may have failed, and nobody knows."""
        told = set(self._told_works)
        return [work for work in self._works if work not in told]

    def untold(self) -> list[str]:
        """The causes that nobody was told of."""
        noted = {failure.message: failure for failure in self._noted}
        return [str(failure) for message, failure in noted.items()
                if not any(message.endswith(other) for other in noted
                           if other != message)
                and not any(told.endswith(message) or message.endswith(told)
                            for told in self._told)]
