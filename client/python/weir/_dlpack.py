"""Tensors for other libraries, by DLPack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

_CPU = (1, 0)  # kDLCPU


def export(read: Callable[[], NDArray[Any]], stream: int | None,
           max_version: tuple[int, int] | None,
           dl_device: tuple[int, int] | None, copy: bool | None) -> Any:
    """What `__dlpack__` gives of the elements that `read` copies into this
    process's memory."""
    if stream not in (None, -1):
        raise BufferError(
            f"stream {stream}: what is exported is a copy in this process's "
            "memory, which no stream writes; stream must be None")
    if dl_device not in (None, _CPU):
        raise BufferError(
            f"device {dl_device}: a tensor on a server can be exported to the "
            f"CPU, {_CPU}, alone")
    if copy is False:
        raise BufferError("a tensor on a server is always copied")
    # The capsule is the array's only owner.
    array = read()
    if max_version is None:
        return array.__dlpack__()
    return array.__dlpack__(max_version=max_version)
