"""What goes to one stream of a session."""

from __future__ import annotations

import collections
import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from weir._proto import session_pb2

# Of a message; the server takes so many commands. What is in one message more
# is not sent sooner.
_MOST_COMMANDS = 1024
_MOST_BYTES = 1 << 20
# The tag of SessionRequest.commands: a message, with its length before it.
_COMMANDS = bytes([session_pb2.SessionRequest.DESCRIPTOR.fields_by_name[
    "commands"].number << 3 | 2])


def _varint(number: int) -> bytes:
    """As messages have lengths."""
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


@dataclasses.dataclass(slots=True)
class _Message:
    """Commands in their bytes, and the number of the first."""

    first: int
    commands: list[bytes]
    size: int = 0


class Outgoing:
    """Messages, of which gRPC takes one after the other. One that it has not
    taken yet takes in what comes behind it, as far as there is room, so that
    threads which ask at the same time share it. Thread-safe."""

    def __init__(self, opening: session_pb2.SessionRequest,
                 most_bytes: int, acknowledged: Callable[[], int]) -> None:
        """`acknowledged` says up to which number answers came, as a message is
        taken."""
        self._opening = opening
        self._most_bytes = min(most_bytes, _MOST_BYTES)
        self._acknowledged = acknowledged
        self._lock = threading.Lock()
        self._waiting: collections.deque[_Message] = collections.deque()
        # True for each that waits; False: the end.
        self._ready: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def add(self, first: int, commands: Sequence[bytes]) -> int:
        """Behind all that was added; `first` follows the last of that. How many
        messages more it takes."""
        begun = 0
        with self._lock:
            last = self._waiting[-1] if self._waiting else None
            for number, command in enumerate(commands, first):
                if last is None or len(last.commands) >= _MOST_COMMANDS or (
                        last.commands and
                        last.size + len(command) > self._most_bytes):
                    last = self._begin(number)
                    begun += 1
                elif not last.commands:
                    last.first = number
                last.commands.append(command)
                last.size += len(command)
        return begun

    def acknowledge(self) -> None:
        """The server is to hear soon which answers came."""
        with self._lock:
            if not self._waiting:
                self._begin(0)

    def end(self) -> None:
        """Nothing comes behind what was added."""
        self._ready.put(False)

    def _begin(self, first: int) -> _Message:
        begun = _Message(first, [])
        self._waiting.append(begun)
        self._ready.put(True)
        return begun

    def __iter__(self) -> Iterator[bytes]:
        """Waits for what comes, until the end."""
        yield self._opening.SerializeToString()
        while self._ready.get():
            with self._lock:
                message = self._waiting.popleft()
            # Each command was written already.
            parts = [session_pb2.SessionRequest(
                first_sequence=message.first,
                acknowledged=self._acknowledged()).SerializeToString()]
            for command in message.commands:
                parts += _COMMANDS, _varint(len(command)), command
            yield b"".join(parts)
