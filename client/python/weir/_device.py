"""The devices of a server."""

from __future__ import annotations

import dataclasses
from types import TracebackType

from weir._mode import current_mode, pop, push


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A device by its name; what `weir.devices()` gives says more. A context
    manager: what is made in its block by this thread or task is made there,
    unless an operand or a context of the block says otherwise."""

    # "cpu" or "cuda:N".
    name: str
    # Of the device itself, the same after a restart; empty if not asked for.
    uuid: str = dataclasses.field(default="", compare=False)
    # What the vendor calls it.
    product: str = dataclasses.field(default="", compare=False)
    # Bytes of its memory; 0 if not known.
    memory_bytes: int = dataclasses.field(default=0, compare=False)
    # Used where nothing names one.
    is_default: bool = dataclasses.field(default=False, compare=False)

    def __str__(self) -> str:
        return self.name

    def __enter__(self) -> Device:
        push(None, current_mode(), self)
        return self

    def __exit__(self, kind: type[BaseException] | None,
                 error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        pop()


def name_of(device: Device | str | None) -> str:
    """As requests have it: empty for none."""
    return "" if device is None else str(device)
